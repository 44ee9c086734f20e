// Normalisation and softmax.
#pragma once

#include "types.h"

namespace at::native::zendnn::kernels {

// Normalises each row of x + residual: contiguous (rows, cols). out and sum_out
// are different; each of them may be x or residual.
struct NormArgs {
  const void* x = nullptr;
  const void* residual = nullptr; // (rows, cols), or null
  const void* weight = nullptr;   // (cols), or null
  const void* bias = nullptr;     // (cols), or null
  void* out = nullptr;
  void* sum_out = nullptr;  // receives x + residual, or null
  void* mean_out = nullptr; // (rows) of layer_norm, with rstd_out, or null
  void* rstd_out = nullptr; // (rows)
  int64_t rows = 0;
  int64_t cols = 0;
  float eps = 0;
  DType dtype{};
  DType weight_dtype{}; // of weight, bias, mean and rstd
};

// (s - mean) / sqrt(variance + eps) · weight + bias, where s = x + residual is
// first rounded to dtype, as with a separate addition.
void layer_norm(const NormArgs& args);
// s / sqrt(mean of squares + eps) · weight + bias.
void rms_norm(const NormArgs& args);

// Softmax over the middle of contiguous (outer, dim, inner); out may be x.
struct SoftmaxArgs {
  const void* x = nullptr;
  void* out = nullptr;
  int64_t outer = 1;
  int64_t dim = 0;
  int64_t inner = 1; // 1: over the last dimension, the fastest case
  bool log = false;
  // Whether subnormal results over the last dimension may be flushed to 0:
  // multiplications by subnormals take sixty times as long.
  bool flush = false;
  DType dtype{};
};

void softmax(const SoftmaxArgs& args);

} // namespace at::native::zendnn::kernels
