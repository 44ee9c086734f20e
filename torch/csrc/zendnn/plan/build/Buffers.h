// The buffers of an executable in the making: which steps need each, and which
// values lie in it.
#pragma once

#include <torch/csrc/zendnn/plan/run/Executable.h>

#include <cstdint>
#include <vector>

namespace at::native::zendnn::plan {

class C10_EXPORT Buffers {
 public:
  // Returns the index of a buffer that is needed in a step.
  int64_t add(Buffer buffer, int64_t step);
  const Buffer& operator[](int64_t index) const {
    return buffers_[index];
  }
  // The buffer of the place, or the one that this is bound in.
  int64_t holder_index(Ref ref) const {
    const auto& buffer = buffers_[ref.buffer];
    return buffer.kind == BufferKind::bound ? buffer.index : ref.buffer;
  }
  const Buffer& holder(Ref ref) const {
    return buffers_[holder_index(ref)];
  }
  bool have_one_holder(Ref a, Ref b) const {
    return holder_index(a) == holder_index(b);
  }
  // A step needs the place, unless it is null.
  void touch(Ref ref, int64_t step);
  void occupy(Ref ref, int64_t value);
  // No step reads a constant's own elements, which may lie elsewhere then.
  void forget(int64_t index) {
    buffers_[index].data = nullptr;
  }
  // No step reads or writes a buffer of the arena.
  void drop(int64_t index) {
    buffers_[index].bytes = 0;
  }
  // The number that each step has now.
  void renumber(const std::vector<int64_t>& now);
  // Gives each buffer of the arena an offset such that no two that live at the
  // same time overlap, largest buffers first, each at the lowest place that is
  // free for its whole life (greedy by size: Pisarchyk and Lee, 2020). Returns
  // the buffers and the arena's bytes. Without `share`, no two overlap.
  std::pair<std::vector<Buffer>, int64_t> lay_out(bool share) &&;

 private:
  std::vector<Buffer> buffers_;
};

} // namespace at::native::zendnn::plan
