// Steps that run kernels of ours.
#pragma once

#include <torch/csrc/zendnn/plan/Operators.h>

#include <cstring>
#include <type_traits>

namespace at::native::zendnn::plan {

// A pointer among a kernel's arguments, and what it points to: a place, known
// at each run, or numbers that the step keeps.
template <typename Args>
class Pointer {
 public:
  template <typename T>
  Pointer(T* Args::* member, Ref ref) : offset_(offset_of(member)), ref_(ref) {}
  Pointer(const int64_t* Args::* member, Dims numbers)
      : offset_(offset_of(member)), numbers_(std::move(numbers)) {}

  Ref ref() const {
    return ref_;
  }
  void set(Args& args, const Frame& frame) const {
    const void* target = numbers_ ? numbers_->data() : frame.at(ref_);
    std::memcpy(
        reinterpret_cast<char*>(&args) + offset_, &target, sizeof target);
  }

 private:
  template <typename T>
  static size_t offset_of(T* Args::* member) {
    const Args args{};
    return reinterpret_cast<const char*>(&(args.*member)) -
           reinterpret_cast<const char*>(&args);
  }

  size_t offset_;
  Ref ref_{};
  std::optional<Dims> numbers_{};
};

// Adds a step that runs the kernel on `args` with these pointers. A kernel that
// returns false has met an index out of range.
template <typename Result, typename Args>
void add_kernel(
    Builder& builder,
    const Node& node,
    const std::string& implementation,
    Result (*kernel)(const Args&),
    const std::type_identity_t<Args>& args,
    const std::vector<Pointer<std::type_identity_t<Args>>>& pointers,
    double flops = 0) {
  std::vector<Ref> touched;
  for (const auto& pointer : pointers) {
    touched.push_back(pointer.ref());
  }
  builder.add_kernel(
      node,
      implementation,
      touched,
      [kernel, args, pointers](const Frame& frame) {
        auto call = args;
        for (const auto& pointer : pointers) {
          pointer.set(call, frame);
        }
        if constexpr (std::is_same_v<Result, bool>) {
          TORCH_CHECK_INDEX(kernel(call), kOutOfRange);
        } else {
          kernel(call);
        }
      },
      flops);
}

} // namespace at::native::zendnn::plan
