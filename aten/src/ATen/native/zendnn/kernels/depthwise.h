// Convolutions of planes, each with a kernel of its own.
#pragma once

#include "types.h"

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
  int64_t height = 0, width = 0, out_height = 0, out_width = 0;
  int64_t kernel_height = 0, kernel_width = 0;
  int64_t stride_down = 1, stride_across = 1;
  int64_t dilation_down = 1, dilation_across = 1;
  // As many rows of zeros are above x, and as many as out_height asks for
  // below.
  int64_t pad_top = 0, pad_left = 0;
  DType dtype = DType::float32;
};

// Whether what a row of the result reads is small enough. Looks at sizes only.
bool depthwise_takes(const DepthwiseArgs& args);

void depthwise(const DepthwiseArgs& args);

} // namespace at::native::zendnn::kernels
