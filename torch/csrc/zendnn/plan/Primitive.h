// What convolutions and matrix products share: a primitive that was made, and
// timing it on memory of its own.
#pragma once

#include <torch/csrc/zendnn/plan/Executable.h>
#include <torch/csrc/zendnn/plan/Tuner.h>

namespace at::native::zendnn::plan {

struct Primitive {
  ::zendnn::primitive run;
  memory::desc source, weights, result, workspace;
  std::string implementation, name;

  template <typename Desc>
  Primitive(const Desc& desc, ::zendnn::primitive primitive, std::string kind)
      : run(std::move(primitive)),
        source(desc.src_desc()),
        weights(desc.weights_desc()),
        result(desc.dst_desc()),
        workspace(desc.scratchpad_desc()),
        implementation(desc.impl_info_str()),
        name(std::move(kind) + implementation) {}
};

// ZenDNN's plain loops, for what it has no fast code for.
inline bool is_reference(const std::string& implementation) {
  return implementation.find("ref") != std::string::npos;
}

// A tensor's type, sizes and layout, for the key of a choice.
std::string text_of(const memory::desc& desc);

// The same tensor in whichever layout the primitive likes.
memory::desc any_layout(const memory::desc& of);

// Takes weights out of the caches unless they are small, before a run is timed:
// a model has more of them than its caches hold, so that they come from memory.
void evict_weights(void* weights, int64_t bytes);

// Runs the primitive with a bias (none when zero) and its post-ops' operands.
Candidate as_candidate(
    const Primitive& made,
    const memory::desc& bias,
    const std::vector<Step::Argument>& operands);

} // namespace at::native::zendnn::plan
