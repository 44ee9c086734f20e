// Sums and means over any dimensions.
#pragma once

#include "types.h"

namespace at::native::zendnn::kernels {

// Sums over up to 8 dimensions of x, times `scale`; out does not overlap x.
// Sums are in double, so that the mean of equal numbers is exact. An inner
// stride of 1 in x is fastest.
struct SumArgs {
  const void* x = nullptr;
  const int64_t* x_strides = nullptr; // null: contiguous
  void* out = nullptr;
  const int64_t* out_strides = nullptr; // 0: a dimension is summed
  const int64_t* sizes = nullptr;       // of x
  int64_t ndim = 0;
  double scale = 1; // 1 / count for a mean
  DType dtype{};
};

void reduce_sum(const SumArgs& args);

// The same of integers, with sums that wrap around.
struct IntegerSumArgs {
  const void* x = nullptr; // int64 or boolean
  const int64_t* x_strides = nullptr;
  int64_t* out = nullptr;
  const int64_t* out_strides = nullptr; // 0: a dimension is summed
  const int64_t* sizes = nullptr;       // of x
  int64_t ndim = 0;
  bool boolean = false;
};

void integer_sum(const IntegerSumArgs& args);

} // namespace at::native::zendnn::kernels
