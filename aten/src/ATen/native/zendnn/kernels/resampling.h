// Images in other sizes.
#pragma once

#include "types.h"

namespace at::native::zendnn::kernels {

// Strides of images. Either the pixels of a row or the channels of a pixel lie
// side by side.
struct ResampleStrides {
  int64_t batch = 0, channel = 0, row = 0, pixel = 0;
};

// For each line of the result: between which lines of the image it lies, and
// how much of the second one it has.
struct Lines {
  const int32_t* first = nullptr;
  const int32_t* second = nullptr;
  const float* share = nullptr; // null: all of the first line
};

// A row of the image is up to this long.
constexpr int64_t kLongestRow = 4096;

// out[y, x] = the mean of the up to four pixels of x that it lies between.
struct ResampleArgs {
  const void* x = nullptr;
  void* out = nullptr;
  ResampleStrides x_strides{}, out_strides{};
  Lines rows, columns; // shares are both null or both given
  int64_t batch = 0, channels = 0;
  int64_t width = 0; // of x
  int64_t out_height = 0, out_width = 0;
  DType dtype = DType::float32;
};

void resample(const ResampleArgs& args);

} // namespace at::native::zendnn::kernels
