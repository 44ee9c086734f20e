// Resampling of images.
#pragma once

#include "types.h"

#include <ATen/native/zendnn/kernels/functions.h>

namespace at::native::zendnn::kernels {

// The number of lines of the image per line of the result.
constexpr int64_t taps_of(Resampling algorithm) {
  switch (algorithm) {
    case Resampling::nearest:
      return 1;
    case Resampling::linear:
      return 2;
    default:
      return 4;
  }
}

// Finds those lines and their weights as torch does.
struct LinesArgs {
  Resampling algorithm = Resampling::nearest;
  bool align_corners = false;
  int64_t in = 0;
  int64_t out = 0;
  double factor = 0; // 0: out / in
  // (taps, out) lines, then as many weights, which are float32.
  int32_t* lines = nullptr;
};

constexpr int64_t lines_bytes(const LinesArgs& args) {
  return taps_of(args.algorithm) * args.out * 8;
}

void find_lines(const LinesArgs& args);

// Strides of images. Either the pixels of a row or the channels of a pixel are
// contiguous.
struct ResampleStrides {
  int64_t batch = 0, channel = 0, row = 0, pixel = 0;
};

// out[y, x] = the weighted sum of pixels of x, by what find_lines() found. Rows
// and columns have the same algorithm, or rows are nearest and columns linear,
// for a signal of one row.
struct ResampleArgs {
  const void* x = nullptr;
  void* out = nullptr;
  ResampleStrides x_strides{}, out_strides{};
  const int32_t* rows = nullptr;
  const int32_t* columns = nullptr;
  Resampling down = Resampling::nearest, across = Resampling::nearest;
  int64_t batch = 0, channels = 0;
  int64_t out_height = 0, out_width = 0;
  DType dtype{};
};

void resample(const ResampleArgs& args);

} // namespace at::native::zendnn::kernels
