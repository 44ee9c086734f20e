// What the implementations for one choice run on, one after the other, so that
// they can be timed and their results compared.
#pragma once

#include <torch/csrc/zendnn/plan/build/Product.h>

#include <map>

namespace at::native::zendnn::plan {

class Trial {
 public:
  // `weights` writes the layer's own weights as `plain` says, and `lying` is
  // where they lie like that, or nothing; `depth` products are summed for each
  // element of the result, and post-ops magnify what rounding makes of the sum.
  Trial(
      memory::desc plain,
      Fill weights,
      Lying lying,
      const Attached& attached,
      int64_t depth,
      double magnification);

  // It refers to the trial and to what is given.
  Candidate candidate(const Implementation& implementation);
  // What the reference computes, with the scale of its sums.
  Outcome judge(const Implementation& reference);

 private:
  // Memory for an argument of all candidates, which is of one size for all. A
  // larger request replaces what was there.
  void* at(int argument, int64_t bytes);
  // The same with random numbers in it: from -1 to 1, or, for operands of
  // post-ops, which may divide, from 0.5 to 1.5.
  void* operand(int argument, const memory::desc& desc);
  // What a result is written over: NaN, or numbers where it is added to them.
  void* destination(const memory::desc& desc);
  // The layer's weights as the implementation wants them, which it alone holds:
  // candidates run in turns.
  std::shared_ptr<void> weights(const Implementation& implementation);
  // The typical size of a sum of the layer's products with such numbers: one
  // that cancels out has the same rounding errors.
  double scale();

  struct Piece {
    std::shared_ptr<void> memory;
    int64_t bytes = 0;
  };
  std::map<int, Piece> pieces_;
  memory::desc plain_;
  memory::desc result_{}; // of the first candidate, in whose order all compare
  Fill weights_;
  Lying lying_; // the weights, where they lie; or nothing
  const Attached& attached_;
  int64_t depth_;
  double magnification_;
};

} // namespace at::native::zendnn::plan
