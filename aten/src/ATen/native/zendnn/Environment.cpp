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

namespace at::native::zendnn {
namespace {

void warn(const char* name, const char* text, const std::string& rest) {
  static std::mutex mutex;
  static auto* const told = new std::set<std::string>; // never destroyed
  {
    const std::lock_guard lock(mutex);
    if (!told->insert(name).second) {
      return;
    }
  }
  if (warns()) {
    TORCH_WARN(name, " is '", printable(text), "', ", rest);
  }
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
