// The largest number of each window.
#pragma once

#include "windows.h"

namespace at::native::zendnn::kernels {

// Of equal numbers the first counts, of NaN the last. All are contiguous; out
// must not overlap x.
struct MaxPoolArgs {
  const void* x = nullptr; // (planes, height, width)
  void* out = nullptr;     // (planes, out_height, out_width)
  // Where in its plane each number is, of the same sizes; rows and columns
  // count from the image's corner.
  int64_t* indices = nullptr;
  int64_t planes = 0;
  Windows windows; // that are taken; dilated only where nothing is imagined
  DType dtype = DType::float32;
};

void max_pool(const MaxPoolArgs& args);

} // namespace at::native::zendnn::kernels
