// What kernels on dense CPU tensors ask of their operands.
#pragma once

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/zendnn/Utils.h>

namespace at::native::zendnn {

// Whether memory holds the elements as they are.
inline bool is_dense(const Tensor& t) {
  return t.layout() == kStrided && t.device().is_cpu() && !t.is_conj() &&
         !t.is_neg();
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

// A window's parameter over one dimension, for an image with a height of one.
inline DimVector with_height(IntArrayRef param, int64_t height) {
  return {height, param[0]};
}

} // namespace at::native::zendnn
