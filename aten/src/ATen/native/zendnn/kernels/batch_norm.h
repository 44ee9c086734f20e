// Normalisation of channels, by known statistics or by their own.
#pragma once

#include "types.h"

namespace at::native::zendnn::kernels {

// What is contiguous: a channel's pixels, a pixel's channels, or a pixel's
// block of channels. A block has as many channels as a vector has lanes; the
// last one may be padded with zeros.
enum class ChannelLayout { planes, last, blocks };

// out = (x - mean) / sqrt(variance + eps) · weight + bias, or 0 if that is less
// and `relu` is set. x is (batch, channels, pixels).
struct BatchNormArgs {
  const void* x = nullptr;
  void* out = nullptr; // may be x of equal strides
  // One per channel, of weight_dtype; weight and bias may be null.
  const void* mean = nullptr;
  const void* variance = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;
  int64_t batch = 0, channels = 0, pixels = 0;
  int64_t x_batch_stride = 0, out_batch_stride = 0;
  // From one channel, pixel or block to the next.
  int64_t x_stride = 0, out_stride = 0;
  ChannelLayout layout = ChannelLayout::planes;
  float eps = 0;
  bool relu = false;
  DType dtype{}; // of x and out
  DType weight_dtype{};
};

void batch_norm(const BatchNormArgs& args);

// The same with each channel's own mean and variance. A running statistic
// becomes momentum · new + (1 - momentum) · old, where the new variance is the
// sample variance. x and out are dense, planes or last, with more than one
// element per channel.
struct BatchNormTrainingArgs {
  const void* x = nullptr;
  void* out = nullptr;
  // One per channel.
  const float* weight = nullptr;     // or null
  const float* bias = nullptr;       // or null
  float* running_mean = nullptr;     // or null
  float* running_variance = nullptr; // or null
  float* mean = nullptr;
  float* rstd = nullptr; // 1 / sqrt(variance + eps)
  double* scratch = nullptr;
  int64_t batch = 0, channels = 0, pixels = 0;
  double eps = 0, momentum = 0;
  ChannelLayout layout = ChannelLayout::planes;
  DType dtype{}; // of x and out
};

void batch_norm_training(const BatchNormTrainingArgs& args);

// The gradients of out = (x - mean) · rstd · weight + bias. Null ones are not
// computed. grad_out, x and grad_x are dense, planes or last.
struct BatchNormBackwardArgs {
  const void* grad_out = nullptr;
  const void* x = nullptr;
  void* grad_x = nullptr;
  // One per channel.
  const float* weight = nullptr; // or null
  const float* mean = nullptr;
  const float* rstd = nullptr;
  float* grad_weight = nullptr;
  float* grad_bias = nullptr;
  double* scratch = nullptr;
  int64_t batch = 0, channels = 0, pixels = 0;
  bool own = true; // whether mean and rstd depend on x
  ChannelLayout layout = ChannelLayout::planes;
  DType dtype{}; // of grad_out, x and grad_x
};

void batch_norm_backward(const BatchNormBackwardArgs& args);

// Channels-last images are summed in tiles of this many channels, and in this
// many chunks of rows, each with two numbers of scratch per channel.
constexpr int64_t kBatchNormTile = 512;
inline int64_t batch_norm_chunks(int64_t rows, int64_t channels) {
  constexpr int64_t size = 32768, most = 64;
  const int64_t tile = channels < kBatchNormTile ? channels : kBatchNormTile;
  const int64_t wanted = rows * tile / size;
  return wanted < 1 ? 1 : wanted > most ? most : wanted;
}

} // namespace at::native::zendnn::kernels
