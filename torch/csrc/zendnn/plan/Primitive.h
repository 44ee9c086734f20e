// What convolutions and matrix products share: a primitive that can be made.
#pragma once

#include <torch/csrc/zendnn/plan/Executable.h>

#include <ATen/native/zendnn/Primitives.h>

#include <functional>

namespace at::native::zendnn::plan {

struct Primitive {
  std::function<::zendnn::primitive()> make; // compiles it, if need be
  memory::desc source, weights, result, scratchpad;
  memory::desc plain; // the weights as they lie
  std::string implementation, name;

  // Run is the class of the primitive that `desc` describes.
  template <typename Run>
  static Primitive of(
      const typename Run::primitive_desc& desc,
      const std::string& kind,
      const memory::desc& plain) {
    // next_impl() changes what copies of a descriptor refer to; made from its
    // handle, a descriptor is a clone.
    return {
        [desc = typename Run::primitive_desc(desc.get())] { return Run(desc); },
        desc.src_desc(),
        desc.weights_desc(),
        desc.dst_desc(),
        desc.scratchpad_desc(),
        plain,
        desc.impl_info_str(),
        kind + desc.impl_info_str()};
  }
};

// The most bytes of scratchpad that a primitive may have whose operands take so
// many. Some convolutions want room in proportion to products of sizes.
inline int64_t scratchpad_bound(int64_t operand_bytes) {
  constexpr int64_t kFree = int64_t{64} << 20, kShare = 16;
  return kFree + kShare * operand_bytes;
}

// Whether a candidate keeps within that bound; says in a verbose line if not.
bool is_affordable(const Primitive& made);

// A tensor's type, sizes and layout, for the key of a choice; `about` rounds
// the first size up to one that its neighbours share.
std::string text_of(const memory::desc& desc, bool about = false);

// The same tensor in whichever layout the primitive likes.
memory::desc any_layout(const memory::desc& of);

// Takes weights out of the caches unless they are small, before a run is timed:
// a model has more of them than its caches hold, so that they come from memory.
void evict_weights(void* weights, int64_t bytes);

} // namespace at::native::zendnn::plan
