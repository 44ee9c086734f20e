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
  static auto* const made = new Warnings; // never destroyed
  return *made;
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
Number
read(const char* name, Number least, Number otherwise, const char* kind) {
  const char* const text = std::getenv(name);
  if (text == nullptr) {
    return otherwise;
  }
  const char* const end = text + std::strlen(text);
  Number number{};
  const auto [rest, error] = std::from_chars(text, end, number);
  // The comparison is false for NaN, too.
  if (error == std::errc() && rest == end && number >= least) {
    return number;
  }
  std::ostringstream told;
  told << "which is no " << kind << " from " << least << " on: it stays "
       << otherwise;
  warn(name, text, told.str());
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

int64_t whole_number_from(const char* name, int64_t least, int64_t otherwise) {
  return read(name, least, otherwise, "whole number");
}

double number_from(const char* name, double otherwise) {
  return read(name, 0.0, otherwise, "number");
}

std::string word_from(const char* name, const std::vector<std::string>& words) {
  const auto& usual = words.front();
  const char* const text = std::getenv(name);
  if (text == nullptr ||
      std::find(words.begin(), words.end(), std::string(text)) != words.end()) {
    return text == nullptr ? usual : text;
  }
  std::ostringstream told;
  told << "which is none of";
  for (const auto& word : words) {
    told << ' ' << word;
  }
  told << ": it stays " << usual;
  warn(name, text, told.str());
  return usual;
}

} // namespace at::native::zendnn
