// Reads environment variables.
#include <ATen/native/zendnn/Environment.h>

#include <ATen/native/zendnn/Logs.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iomanip>
#include <iterator>
#include <mutex>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

namespace at::native::zendnn {
namespace {

struct Warnings {
  std::mutex mutex{};
  std::set<std::string> variables{}; // that were warned of
  std::vector<std::string> early{};
  bool is_loading = true;
};

Warnings& warnings() {
  static auto* const instance = new Warnings; // never destroyed
  return *instance;
}

void tell(const std::string& sentence) {
  if (warns()) {
    TORCH_WARN(sentence);
  }
}

void warn(const char* name, const char* text, const std::string& rest) {
  auto sentence = name + (" is '" + printable(text)) + "', " + rest;
  {
    const std::lock_guard lock(warnings().mutex);
    if (!warnings().variables.insert(name).second) {
      return;
    }
    if (warnings().is_loading) {
      warnings().early.push_back(std::move(sentence));
      return;
    }
  }
  tell(sentence);
}

template <class Number>
Number read_number(const char* name, Number otherwise, const char* kind) {
  const char* const text = std::getenv(name);
  if (text == nullptr) {
    return otherwise;
  }
  const char* const end = text + std::strlen(text);
  Number number{};
  const auto [rest, error] = std::from_chars(text, end, number);
  // The comparison is false for NaN, too.
  if (error == std::errc() && rest == end && number >= 0) {
    return number;
  }
  std::ostringstream message;
  message << "which is no " << kind << " from 0 on: it stays " << otherwise;
  warn(name, text, message.str());
  return otherwise;
}

} // namespace

void warn_of(const char* name, const std::string& rest) {
  const char* const text = std::getenv(name);
  warn(name, text == nullptr ? "" : text, rest);
}

void tell_early_warnings() {
  std::vector<std::string> early;
  {
    const std::lock_guard lock(warnings().mutex);
    warnings().is_loading = false;
    early.swap(warnings().early);
  }
  for (const auto& sentence : early) {
    tell(sentence);
  }
}

std::string printable(const std::string& text) {
  constexpr size_t kMost = 200;
  std::ostringstream shown;
  shown << std::hex << std::setfill('0');
  for (const char character : text.substr(0, kMost)) {
    if (character >= ' ' && character <= '~') {
      shown << character;
    } else {
      shown << "\\x" << std::setw(2)
            << static_cast<int>(static_cast<unsigned char>(character));
    }
  }
  shown << (text.size() > kMost ? "..." : "");
  return shown.str();
}

int64_t whole_number_from(const std::string& name, int64_t otherwise) {
  return read_number(name.c_str(), otherwise, "whole number");
}

double number_from(const std::string& name, double otherwise) {
  return read_number(name.c_str(), otherwise, "number");
}

std::string word_from(
    const std::string& name,
    const std::vector<std::string>& words) {
  const auto& usual = words.front();
  const char* const text = std::getenv(name.c_str());
  if (text == nullptr ||
      std::find(words.begin(), words.end(), std::string(text)) != words.end()) {
    return text == nullptr ? usual : text;
  }
  std::ostringstream message;
  message << "which is none of";
  for (const auto& word : words) {
    message << ' ' << word;
  }
  message << ": it stays " << usual;
  warn(name.c_str(), text, message.str());
  return usual;
}

namespace variables {

std::string read(const Words& variable) {
  std::istringstream in{std::string(variable.words)};
  const std::vector<std::string> words(
      std::istream_iterator<std::string>{in}, {});
  return word_from(variable.name, words);
}

double read(const Number& variable) {
  return number_from(variable.name, variable.otherwise);
}

int64_t read(const WholeNumber& variable) {
  return whole_number_from(variable.name, variable.otherwise);
}

int64_t read(const MachineNumber& variable, int64_t otherwise) {
  return whole_number_from(variable.name, otherwise);
}

const char* read(const Text& variable) {
  return std::getenv(variable.name);
}

bool is_set(const Words& variable) {
  return std::getenv(variable.name) != nullptr;
}

} // namespace variables
} // namespace at::native::zendnn
