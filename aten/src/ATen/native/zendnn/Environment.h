// Reads our environment variables. An invalid value warns once; the default
// applies.
#pragma once

#include <c10/macros/Export.h>

#include <cstdint>
#include <string>
#include <vector>

namespace at::native::zendnn {

// An integer of at least `least`.
C10_EXPORT int64_t
whole_number_from(const char* name, int64_t least, int64_t otherwise);

// A number of at least 0.
double number_from(const char* name, double otherwise);

// One of some words; the first is the default.
C10_EXPORT std::string word_from(
    const char* name,
    const std::vector<std::string>& words);

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
