// Normalisation of groups of channels.
#pragma once

#include "types.h"

namespace at::native::zendnn::kernels {

// x is (batch, groups · channels, pixels). Either the pixels of a channel or
// the channels of a pixel are contiguous, both in x and in out.
struct GroupNormArgs {
  const void* x = nullptr;
  void* out = nullptr;          // may be x of equal strides
  const void* weight = nullptr; // one per channel, or null
  const void* bias = nullptr;   // the same
  int64_t batch = 0, groups = 0, channels = 0, pixels = 0;
  int64_t x_batch_stride = 0, out_batch_stride = 0;
  // From one channel to the next if pixels are contiguous, from one pixel to
  // the next if channels are.
  int64_t x_stride = 0, out_stride = 0;
  bool channels_last = false;
  float eps = 0;
  DType dtype{};
  DType weight_dtype{}; // of weight and bias
};

void group_norm(const GroupNormArgs& args);

} // namespace at::native::zendnn::kernels
