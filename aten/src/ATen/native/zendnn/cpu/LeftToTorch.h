// What is left to torch's own kernels although ZenDNN could do it, because on
// this CPU they are as fast or faster: a function for each family of operators
// that answers differently from one CPU to another. Measured with
// benchmarks.operations.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/native/zendnn/Info.h>

namespace at::native::zendnn::cpu {

// Products of (m, k) and (k, n), as many as the batch has.
inline bool leaves_product(
    ScalarType dtype,
    int64_t batch,
    int64_t m,
    int64_t k,
    int64_t n) {
  // The cost of the call outweighs its speed below this many multiply-adds.
  constexpr int64_t kSmallest = 32 * 32 * 32;
  if (m == 1 || n == 1 || batch * m * n * k < kSmallest) {
    return true;
  }
  if (dtype == kFloat) { // MKL's for AVX2 leave nothing to gain
    return !has_wide_vectors();
  }
  // On AMX, torch's newer oneDNN is ahead in large results and where pairs
  // leave one over.
  constexpr int64_t kLargeResult = 1 << 21, kManyRows = 2048, kDeep = 64;
  return has_tiles() && (m * n >= kLargeResult ||
                         (k % 2 == 1 && k > kDeep && batch * m >= kManyRows));
}

// LSTMs and GRUs, which are products of few rows, again and again.
inline bool leaves_recurrence(ScalarType dtype) {
  return dtype == kFloat && !has_wide_vectors();
}

inline bool leaves_convolution(
    ScalarType dtype,
    bool transposed,
    int64_t channels_in_group) {
  // ZenDNN declines kernels for AMX that torch's oneDNN has made safe since.
  constexpr int64_t kFewChannels = 4;
  return dtype == kBFloat16 && has_tiles() &&
         (transposed ||
          (channels_in_group > 1 && channels_in_group < kFewChannels));
}

// Of tensors (batch, heads, time, size).
inline bool leaves_attention(const Tensor& query) {
  return query.scalar_type() == kFloat && query.size(2) == 1 &&
         !has_wide_vectors();
}

inline bool leaves_attention_gradient(const Tensor& query, const Tensor& key) {
  // Tiles are faster than vectors can be from this many on.
  constexpr int64_t kFewest = 512;
  return query.scalar_type() == kBFloat16 && query.size(2) >= kFewest &&
         key.size(2) >= kFewest && has_tiles();
}

} // namespace at::native::zendnn::cpu
