// Checks of operands for kernels on dense CPU tensors.
#pragma once

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/zendnn/Dtypes.h>
#include <ATen/native/zendnn/Utils.h>

#include <optional>

namespace at::native::zendnn {

// Whether an operand is present. autograd's formulas represent a missing one by
// an undefined tensor.
inline bool has(const std::optional<Tensor>& operand) {
  return operand && operand->defined();
}

// Whether memory holds the elements themselves.
inline bool is_dense(const Tensor& t) {
  constexpr c10::DispatchKeySet lazy{
      c10::DispatchKey::Conjugate, c10::DispatchKey::Negative};
  return t.layout() == kStrided && t.device().is_cpu() &&
         !t.key_set().has_any(lazy);
}

// Whether it is only a CPU tensor: no subclass, no transform, no tangent, no
// lazy view. For code that runs before torch's dispatcher.
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

// Whether autograd has to see what is computed with it.
inline bool needs_grad(const Tensor& t) {
  return t.requires_grad() || t._fw_grad(/*level=*/0).defined();
}

// Whether the elements share no memory. get_overlap_status alone cannot decide
// slices.
inline bool are_apart(const Tensor& a, const Tensor& b) {
  return !a.is_alias_of(b) || get_overlap_status(a, b) == MemOverlapStatus::No;
}

// Whether a kernel that reads each element of x before it writes that of out is
// right.
inline bool may_write(const Tensor& out, const Tensor& x) {
  return out.is_same(x) || are_apart(out, x) ||
         get_overlap_status(out, x) == MemOverlapStatus::Full;
}

// Whether ZenDNN's primitives support this dtype on this CPU.
inline bool takes_dtype(ScalarType scalar) {
  const auto* const dtype = find_dtype(scalar);
  return dtype != nullptr && (uses(dtype->needs[0]) || uses(dtype->needs[1]));
}

// A window's parameter for all spatial dimensions; one value applies to all.
inline DimVector in_each(IntArrayRef param, int64_t spatial) {
  return param.size() == 1 ? DimVector(spatial, param[0]) : DimVector(param);
}

// A window's parameter for one dimension, extended to an image of height 1.
inline DimVector with_height(IntArrayRef param, int64_t height) {
  return {height, param[0]};
}

} // namespace at::native::zendnn
