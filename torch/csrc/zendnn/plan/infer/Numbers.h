// Numbers computed from those that a region is called with. One that only says
// where something lies is bound at each call, and builds nothing.
#pragma once

#include <torch/csrc/zendnn/plan/build/Arena.h>

#include <map>
#include <optional>
#include <set>
#include <vector>

namespace at::native::zendnn::plan {

// constant + Σ factor · numbers[index]
struct Number {
  int64_t constant = 0;
  std::map<size_t, int64_t> factors{}; // by index; none is 0

  bool is_constant() const {
    return factors.empty();
  }
  // Nothing where it exceeds 64 bits.
  std::optional<int64_t> at(const Integers& numbers) const;
  bool operator==(const Number&) const = default;
};

// a + factor · b; nothing where it exceeds 64 bits.
std::optional<Number> sum(const Number& a, const Number& b, int64_t factor = 1);

// For which numbers something has been built.
struct Conditions {
  struct Range {
    Number number;
    int64_t least, most;
    bool holds(const Integers& numbers) const;
    bool operator==(const Range&) const = default;
  };
  std::set<size_t> fixed{}; // indices of those that decide sizes or values
  std::vector<Range> ranges{};

  void fix(const Number& number);
  void keep(const Range& range);
  // Whether what was built for some numbers serves others.
  bool hold(const Integers& built, const Integers& numbers) const;
};

} // namespace at::native::zendnn::plan
