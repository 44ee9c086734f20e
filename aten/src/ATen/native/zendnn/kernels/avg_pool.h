// Average pooling.
#pragma once

#include "windows.h"

namespace at::native::zendnn::kernels {

// All are contiguous; out must not overlap x.
struct AvgPoolArgs {
  const void* x = nullptr; // (planes, height, width)
  void* out = nullptr;     // (planes, out_height, out_width)
  int64_t planes = 0;
  Windows windows; // accepted by takes_windows(), and not dilated
  // Whether the padding counts; no window may then reach beyond it.
  bool counts_padding = true;
  DType dtype{};
};

void avg_pool(const AvgPoolArgs& args);

} // namespace at::native::zendnn::kernels
