// Which candidates for one choice compute the same, and which of them are
// wrong.
#pragma once

#include <torch/csrc/zendnn/plan/tune/Tuner.h>

#include <set>

namespace at::native::zendnn::plan {

// The candidates of a choice in groups of equal results, but for rounding.
class Comparison {
 public:
  // Runs the candidate once.
  void add(size_t index, const Candidate& candidate);
  // Whether there is something to decide.
  bool is_open(bool verify) const;
  // The candidates that are wrong if this is right.
  std::set<size_t> wrong_by(const Outcome& right) const;

 private:
  struct Group {
    Outcome outcome;
    double precision;
    double rounding;
    std::vector<size_t> members;
  };
  std::vector<Group> groups_;
};

} // namespace at::native::zendnn::plan
