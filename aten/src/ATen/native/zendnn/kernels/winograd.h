// Convolution by Winograd's minimal filtering.
#pragma once

#include "types.h"

namespace at::native::zendnn::kernels {

// Strides of a tensor (batch, height, width, channels) whose last stride is 1.
struct ImageStrides {
  int64_t batch, row, pixel;
};

// The weights of a convolution, with any strides, and the memory for packed
// ones.
struct WinogradWeights {
  const float* weights = nullptr; // (filters, channels, 3, 3)
  int64_t filter_stride = 0;
  int64_t channel_stride = 0;
  int64_t row_stride = 0;
  int64_t column_stride = 0;
  int64_t filters = 0;
  int64_t channels = 0;
  // Aligned to 64 bytes; winograd_packed_bytes().
  float* packed = nullptr;
};

// out = clip(convolution of x with 3 × 3 filters + bias + addend), with a
// stride and a dilation of 1 in a single group. x and out must not overlap.
struct WinogradArgs {
  const float* x = nullptr;       // (batch, height, width, channels)
  float* out = nullptr;           // (batch, out_height, out_width, filters)
  const float* weights = nullptr; // as winograd_pack() leaves them
  WinogradWeights unpacked;       // the same, for tiles that are not finite
  const float* bias = nullptr;    // (filters), or null
  const float* addend = nullptr;  // strides of out; may be out; or null
  ImageStrides x_strides{}, out_strides{};
  int64_t batch = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  int64_t filters = 0;
  int64_t pad_top = 0;  // the padding after x follows from out_height and
  int64_t pad_left = 0; // out_width
  int64_t out_height = 0;
  int64_t out_width = 0;
  // The clip's bounds; ReLU is [0, ∞). NaN propagates.
  float low = -__builtin_inff();
  float high = __builtin_inff();
  int threads = 1; // at most
  // Of winograd_scratch_bytes(), aligned to 64 bytes.
  void* scratch = nullptr;
};

// Depends only on `filters` and `channels`.
int64_t winograd_packed_bytes(const WinogradWeights& weights);

// The packed weights are four times as large, and only valid for the current
// instruction set.
void winograd_pack(const WinogradWeights& weights);

// Whether winograd() is likely to beat a direct convolution; it can also
// compute the others. Depends only on sizes; winograd_scratch_bytes() also on
// threads.
bool winograd_takes(const WinogradArgs& args);

// For all threads together.
int64_t winograd_scratch_bytes(const WinogradArgs& args);

// Infinities and NaN are where a direct convolution has them: rows of tiles
// with such results are computed directly, which is many times slower.
void winograd(const WinogradArgs& args);

} // namespace at::native::zendnn::kernels
