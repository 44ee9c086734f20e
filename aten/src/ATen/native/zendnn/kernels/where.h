// Selection between two tensors.
#pragma once

#include "types.h"

namespace at::native::zendnn::kernels {

// out = condition ? x : y over up to 8 dimensions. A stride of 0 broadcasts an
// operand; out must not overlap itself, and may be x or y of equal strides.
// Inner strides of 1 or 0 are fastest.
struct WhereArgs {
  const uint8_t* condition = nullptr; // one byte per element
  const int64_t* condition_strides = nullptr;
  const void* x = nullptr;
  const int64_t* x_strides = nullptr;
  const void* y = nullptr;
  const int64_t* y_strides = nullptr;
  void* out = nullptr;
  const int64_t* out_strides = nullptr; // null: contiguous
  const int64_t* sizes = nullptr;
  int64_t ndim = 0;
  DType dtype = DType::float32; // of x, y and out
};

void where(const WhereArgs& args);

} // namespace at::native::zendnn::kernels
