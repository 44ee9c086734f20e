// The buffers of an executable in the making: from which step to which each is
// needed, and which values lie in it.
#pragma once

#include <torch/csrc/zendnn/plan/Executable.h>

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace at::native::zendnn::plan {

using BufferKind = Executable::Buffer::Kind;

class Buffers {
 public:
  struct Buffer {
    BufferKind kind;
    int64_t index = 0;
    char* data = nullptr;
    Number offset{}; // of a bound one
    int64_t bytes = 0, first = 0, last = 0;
    std::set<int64_t> occupants{};
  };

  // Returns the index of a buffer that is needed in a step.
  int64_t add(Buffer buffer, int64_t step);
  const Buffer& operator[](int64_t index) const {
    return buffers_[index];
  }
  // The one that holds the place, through all that are bound in others.
  const Buffer& holder(Ref ref) const {
    return buffers_[chain(ref).back()];
  }
  bool have_one_holder(Ref a, Ref b) const {
    return chain(a).back() == chain(b).back();
  }
  // A step needs what is there; nothing is where there is none.
  void touch(Ref ref, int64_t step);
  void occupy(Ref ref, int64_t value);
  // Lays out the arena; without `share`, nothing in it shares memory.
  std::pair<std::vector<Executable::Buffer>, int64_t> lay_out(
      bool share,
      int64_t steps) const;

 private:
  // The buffer, and those that it lies in.
  std::vector<int64_t> chain(Ref ref) const;

  std::vector<Buffer> buffers_;
};

} // namespace at::native::zendnn::plan
