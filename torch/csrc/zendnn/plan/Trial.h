// What the candidates for one choice run on, one after the other, so that they
// can be timed and their results compared.
#pragma once

#include <torch/csrc/zendnn/plan/PostOps.h>
#include <torch/csrc/zendnn/plan/Primitive.h>
#include <torch/csrc/zendnn/plan/Tuner.h>

#include <map>

namespace at::native::zendnn::plan {

class Trial {
 public:
  // `weights` writes the layer's own weights as `plain` says; `depth` products
  // are summed for each element of the result, and post-ops magnify what
  // rounding makes of the sum.
  Trial(memory::desc plain, Fill weights, int64_t depth, double magnification);

  // Memory for an argument, as large as any candidate has asked for. Who asks
  // for more ends what was there.
  void* at(int argument, int64_t bytes);
  // The same with random numbers in it: from -1 to 1, or, for operands of
  // post-ops, which may divide, from 0.5 to 1.5.
  void* operand(int argument, const memory::desc& desc);
  // What a result is written over: NaN, or numbers where it is added to them.
  void* destination(const memory::desc& desc, bool accumulates);
  // The layer's weights in a layout; `seen` is the plain one as the primitive
  // names its dimensions.
  void* weights(const memory::desc& seen, const memory::desc& layout);
  void copy_weights(void* to) const {
    weights_(to);
  }
  // How far rounding may move a result of float32 sums, relative to the largest
  // one.
  double precision() const;
  // The typical size of a sum of the layer's products with such numbers: one
  // that cancels out has the same rounding errors.
  double scale();

 private:
  struct Piece {
    std::shared_ptr<void> memory;
    int64_t bytes = 0;
  };
  std::map<int, Piece> pieces_;
  memory::desc plain_;
  Fill weights_;
  int64_t depth_;
  double magnification_;
};

// The elements at `data`, a sample where they are many; its count of NaN is
// that of all the memory, between them too.
Outcome outcome_of(const memory::desc& desc, const void* data);

// What the reference computes, with the scale of its sums.
Outcome judgement_of(const Candidate& reference, Trial& trial);

// Runs the primitive with a bias (none when zero) and its post-ops' operands.
Candidate as_candidate(
    const Primitive& made,
    const memory::desc& bias,
    const Attached& attached,
    const std::shared_ptr<Trial>& trial);

} // namespace at::native::zendnn::plan
