// Reads our environment variables, which are rows of
// torch/backends/zendnn/table/settings.py. An invalid value warns once; the
// default applies.
#pragma once

#include <c10/macros/Export.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace at::native::zendnn {

// The kinds of variables; numbers are 0 or more.
namespace variables {
struct Words {
  const char* name;
  std::string_view words; // between spaces; the first is the default
};
struct Number {
  const char* name;
  double otherwise;
};
struct WholeNumber {
  const char* name;
  int64_t otherwise;
};
// Whose default depends on the machine.
struct MachineNumber {
  const char* name;
};
struct Text {
  const char* name;
};

std::string read(const Words& variable);
double read(const Number& variable);
int64_t read(const WholeNumber& variable);
int64_t read(const MachineNumber& variable, int64_t otherwise);
// Null where it is not set.
const char* read(const Text& variable);
bool is_set(const Words& variable);
} // namespace variables

// The same for Python, which has rows of its own.
C10_EXPORT std::string word_from(
    const std::string& name,
    const std::vector<std::string>& words);
C10_EXPORT double number_from(const std::string& name, double otherwise);
C10_EXPORT int64_t
whole_number_from(const std::string& name, int64_t otherwise);

// Warns once of the variable's value; `rest` says what is wrong with it.
C10_EXPORT void warn_of(const char* name, const std::string& rest);

// Emits the warnings about variables that were read while the library loaded.
// They wait until Python's filters see them: the import of our package calls
// this, and so does each new plan.
C10_EXPORT void tell_early_warnings();

// The text for a warning, in one line: it escapes unprintable characters as
// \xNN, and truncates long texts.
std::string printable(const std::string& text);

} // namespace at::native::zendnn

#include <ATen/native/zendnn/Variables.h>
