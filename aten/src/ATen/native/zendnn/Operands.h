// What kernels on dense CPU tensors ask of their operands.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/native/zendnn/Utils.h>

namespace at::native::zendnn {

// Whether memory holds the elements as they are.
inline bool is_dense(const Tensor& t) {
  return t.layout() == kStrided && t.device().is_cpu() && !t.is_conj() &&
         !t.is_neg();
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
