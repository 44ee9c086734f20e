// Normalisation of channels by statistics that are known.
#pragma once

#include "types.h"

namespace at::native::zendnn::kernels {

// Which numbers lie side by side: a channel's pixels, a pixel's channels, or
// those of a block of channels, pixel by pixel. A block has as many channels as
// a vector has numbers; the last one may be partly empty and is then filled
// with zeros.
enum class ChannelLayout { planes, last, blocks };

// out = (x - mean) / sqrt(variance + eps) · weight + bias, or 0 if that is less
// and `relu` is set. x is (batch, channels, pixels).
struct BatchNormArgs {
  const void* x = nullptr;
  void* out = nullptr; // may be x of equal strides
  // One for each channel; weight and bias may be null.
  const float* mean = nullptr;
  const float* variance = nullptr;
  const float* weight = nullptr;
  const float* bias = nullptr;
  int64_t batch = 0, channels = 0, pixels = 0;
  int64_t x_batch_stride = 0, out_batch_stride = 0;
  // From a channel, a pixel or a block to the next.
  int64_t x_stride = 0, out_stride = 0;
  ChannelLayout layout = ChannelLayout::planes;
  float eps = 0;
  bool relu = false;
  DType dtype = DType::float32; // of x and out
};

void batch_norm(const BatchNormArgs& args);

} // namespace at::native::zendnn::kernels
