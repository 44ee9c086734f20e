// Steps that compute each element by itself, and one step for a chain of them.
#pragma once

#include <torch/csrc/zendnn/plan/build/Buffers.h>

#include <ATen/native/zendnn/kernels/elementwise.h>

#include <vector>

namespace at::native::zendnn::plan {

// Functions of each element, one after the other.
struct Pointwise {
  // A place over the dimensions of all; a stride of 0 repeats an element.
  struct At {
    Ref ref;
    Dims strides;
    TensorSpec spec; // of what lies there, as the model has it
    bool is_kept_in_memory = true;
  };
  Dims sizes;
  std::vector<At> places;
  std::vector<kernels::Instruction> instructions; // of these places

  void run(const Frame& frame) const;
  // Whether an instruction makes what lies at the place; and whether that is
  // so before any reads it.
  bool makes(size_t place) const;
  bool makes_first(size_t place) const;
};

// A step that runs the chain; what it is called, and for whom, is not set.
Step pointwise_step(Pointwise chain);

// Makes one step of neighbours that go through the same elements. What one of
// them leaves only for the others is never in memory.
void fuse_pointwise(
    std::vector<std::shared_ptr<const Step>>& steps,
    Buffers& buffers);

} // namespace at::native::zendnn::plan
