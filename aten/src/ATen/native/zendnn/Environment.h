// What environment variables of ours say. Of a value that makes no sense a
// warning tells once, and what holds without the variable stands.
#pragma once

#include <initializer_list>
#include <string>

namespace at::native::zendnn {

// A whole number from `least` on.
int64_t whole_number_from(const char* name, int64_t least, int64_t otherwise);

// A number from 0 on.
double number_from(const char* name, double otherwise);

// One of some words, the first of which holds without the variable.
std::string word_from(
    const char* name,
    std::initializer_list<const char*> words);

// The text as a warning may show it, in one line: what is not printable ASCII
// as \xNN, and the beginning of what is long.
std::string printable(const std::string& text);

} // namespace at::native::zendnn
