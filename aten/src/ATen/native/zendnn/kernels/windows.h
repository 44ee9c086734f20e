// The geometry of windows of a convolution or a pooling on plain images.
#pragma once

#include "types.h"

namespace at::native::zendnn::kernels {

// The largest stride, dilation, padding and number of elements of a window:
// what ZenDNN computes from them fits in 32 bits.
inline constexpr int64_t kLargestArgument = 1 << 24;

struct Windows {
  int64_t height = 0, width = 0; // of the image
  int64_t out_height = 0, out_width = 0;
  int64_t kernel_height = 0, kernel_width = 0;
  int64_t stride_down = 1, stride_across = 1;
  int64_t dilation_down = 1, dilation_across = 1;
  // Padding before the image; the padding after it follows from out_height and
  // out_width.
  int64_t pad_top = 0, pad_left = 0;
};

// Whether the input of a row of the result fits the kernels' strips. Depends
// only on sizes.
bool takes_windows(const Windows& windows);

} // namespace at::native::zendnn::kernels
