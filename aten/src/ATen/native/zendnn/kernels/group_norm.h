// Normalisation of groups of channels.
#pragma once

#include "types.h"

namespace at::native::zendnn::kernels {

// x is (batch, groups · channels, pixels). Either the pixels of a channel or
// the channels of a pixel lie side by side, in x and in out alike.
struct GroupNormArgs {
  const void* x = nullptr;
  void* out = nullptr;          // may be x of equal strides
  const void* weight = nullptr; // one for each channel, or null
  const void* bias = nullptr;   // the same
  int64_t batch = 0, groups = 0, channels = 0, pixels = 0;
  int64_t x_batch_stride = 0, out_batch_stride = 0;
  // From a channel to the next where pixels lie side by side, from a pixel to
  // the next where channels do.
  int64_t x_stride = 0, out_stride = 0;
  bool channels_last = false;
  float eps = 0;
  DType dtype = DType::float32;
  DType weight_dtype = DType::float32; // of weight and bias
};

void group_norm(const GroupNormArgs& args);

} // namespace at::native::zendnn::kernels
