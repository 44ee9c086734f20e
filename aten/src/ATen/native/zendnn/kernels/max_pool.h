// Max pooling.
#pragma once

#include "windows.h"

namespace at::native::zendnn::kernels {

// The index is that of the first of equal numbers, and of the last NaN. All are
// contiguous; out must not overlap x.
struct MaxPoolArgs {
  const void* x = nullptr; // (planes, height, width)
  void* out = nullptr;     // (planes, out_height, out_width)
  // The index of each maximum in its plane, of the same sizes as out; or null.
  int64_t* indices = nullptr;
  int64_t planes = 0;
  Windows windows; // accepted by takes_windows(); dilated only without padding
  DType dtype{};
};

void max_pool(const MaxPoolArgs& args);

} // namespace at::native::zendnn::kernels
