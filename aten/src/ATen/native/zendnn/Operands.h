// What kernels on dense CPU tensors ask of their operands.
#pragma once

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/zendnn/Utils.h>

#include <optional>

namespace at::native::zendnn {

// Whether an operand is there. To autograd's formulas, what is not is a tensor
// that is not defined.
inline bool has(const std::optional<Tensor>& operand) {
  return operand && operand->defined();
}

// Whether memory holds the elements as they are.
inline bool is_dense(const Tensor& t) {
  constexpr c10::DispatchKeySet lazy{
      c10::DispatchKey::Conjugate, c10::DispatchKey::Negative};
  return t.layout() == kStrided && t.device().is_cpu() &&
         !t.key_set().has_any(lazy);
}

// Whether a tensor in memory on the CPU is all that there is: no subclass, no
// transform, no tangent, no view that a bit changes. What comes before torch's
// dispatcher has looked asks this.
inline bool is_plain(const Tensor& t) {
  constexpr c10::DispatchKeySet other{
      c10::DispatchKey::Python,
      c10::DispatchKey::FuncTorchBatched,
      c10::DispatchKey::FuncTorchGradWrapper,
      c10::DispatchKey::Functionalize,
      c10::DispatchKey::Conjugate,
      c10::DispatchKey::Negative,
      c10::DispatchKey::ZeroTensor};
  return t.defined() && !t.is_nested() && t.layout() == kStrided &&
         t.device().is_cpu() && !t.key_set().has_any(other) &&
         !t._fw_grad(/*level=*/0).defined();
}

// Whether no element of the one shares memory with one of the other.
// get_overlap_status alone gives up on slices.
inline bool are_apart(const Tensor& a, const Tensor& b) {
  return !a.is_alias_of(b) || get_overlap_status(a, b) == MemOverlapStatus::No;
}

// Whether what reads an element of x before it writes that of out may do so.
inline bool may_write(const Tensor& out, const Tensor& x) {
  return out.is_same(x) || are_apart(out, x) ||
         get_overlap_status(out, x) == MemOverlapStatus::Full;
}

// Whether ZenDNN computes in this type on this CPU.
inline bool takes_dtype(ScalarType dtype) {
  return dtype == kFloat || (dtype == kBFloat16 && zendnn_bf16_device_check());
}

// A window's parameter over all spatial dimensions: one value stands for all.
inline DimVector in_each(IntArrayRef param, int64_t spatial) {
  return param.size() == 1 ? DimVector(spatial, param[0]) : DimVector(param);
}

// A window's parameter over one dimension, for an image with a height of one.
inline DimVector with_height(IntArrayRef param, int64_t height) {
  return {height, param[0]};
}

} // namespace at::native::zendnn
