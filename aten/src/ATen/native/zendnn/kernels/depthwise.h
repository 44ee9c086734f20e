// Depthwise convolutions: each plane has its own kernel.
#pragma once

#include "windows.h"

namespace at::native::zendnn::kernels {

// out = convolution of x with weight, in as many groups as x has channels, +
// bias. All are contiguous and of one type; out must not overlap them.
struct DepthwiseArgs {
  const void* x = nullptr;      // (batch, channels, height, width)
  const void* weight = nullptr; // (filters, 1, kernel_height, kernel_width)
  const void* bias = nullptr;   // (filters), or null
  void* out = nullptr;          // (batch, filters, out_height, out_width)
  int64_t batch = 0, channels = 0;
  int64_t filters = 0; // a multiple of the channels
  Windows windows;     // accepted by takes_windows()
  DType dtype{};
};

// False, without any write, if a non-finite weight would multiply the padding.
bool depthwise(const DepthwiseArgs& args);

} // namespace at::native::zendnn::kernels
