// Convolution by Winograd's minimal filtering.
#pragma once

#include "types.h"

namespace at::native::zendnn::kernels {

// Strides of a tensor (batch, height, width, channels) whose last stride is 1.
struct ImageStrides {
  int64_t batch, row, pixel;
};

// The weights of a convolution with any strides, and where to pack them.
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
  int64_t pad_top = 0;  // as many rows of zeros are above x, and as many as
  int64_t pad_left = 0; // out_height asks for below
  int64_t out_height = 0;
  int64_t out_width = 0;
  // ReLU is [0, ∞). NaN stays.
  float low = -__builtin_inff();
  float high = __builtin_inff();
  int threads = 1; // at most
  // Of winograd_scratch_bytes(), aligned to 64 bytes.
  void* scratch = nullptr;
};

// Looks at `filters` and `channels` only.
int64_t winograd_packed_bytes(const WinogradWeights& weights);

// The packed weights are four times as large, and good for the instruction set
// in use only.
void winograd_pack(const WinogradWeights& weights);

// Whether winograd() is likely to beat a direct convolution. It can compute
// others, too. Looks at sizes only; winograd_scratch_bytes() at threads, too.
bool winograd_takes(const WinogradArgs& args);

// For all threads together.
int64_t winograd_scratch_bytes(const WinogradArgs& args);

// Infinities and NaN come out where a direct convolution has them: rows of
// tiles with such results are computed directly, many times as slow.
void winograd(const WinogradArgs& args);

} // namespace at::native::zendnn::kernels
