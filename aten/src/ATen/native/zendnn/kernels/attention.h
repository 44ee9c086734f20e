// Scaled dot-product attention.
#pragma once

#include "types.h"

namespace at::native::zendnn::kernels {

// Strides of a tensor (batch, heads, time, size) whose last stride is 1.
struct HeadStrides {
  int64_t batch, head, time;
};

// Strides of a mask over (batch, heads, target, source). 0 broadcasts; the
// source's stride is 0 or 1.
struct MaskStrides {
  int64_t batch, head, target, source;
};

// out = softmax(q kᵀ · scale + mask) v for each batch and head.
// q and out are (batch, heads, target, size), k and v are (batch, kv_heads,
// source, size). Query head h reads the keys of head h / (heads / kv_heads).
struct AttentionArgs {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  HeadStrides q_strides{}, k_strides{}, v_strides{}, out_strides{};
  // log(Σ exp(score)) per query, in float, and 0 for a query that sees no key;
  // (batch, heads, target), or null.
  float* log_sums = nullptr;
  HeadStrides log_sum_strides{};
  int64_t batch = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0; // divides heads
  int64_t target = 0;
  int64_t source = 0;
  int64_t size = 0;
  float scale = 1;
  // The query at position t sees the keys 0 … t, as with torch's is_causal.
  bool causal = false;
  // Whether a query that sees no key gives NaN, as in softmax, or 0.
  bool unseen_is_nan = false;
  // One byte per score, or null: where it is not 0 (with `fill_where` false:
  // where it is 0), the score becomes `fill`, before a mask is added.
  const uint8_t* chosen = nullptr;
  MaskStrides chosen_strides{};
  bool fill_where = true;
  float fill = 0;
  // Added to the scores, or null.
  const void* mask = nullptr;
  MaskStrides mask_strides{};
  DType mask_dtype{};
  // One byte per score, 0 where the key is hidden, or null.
  const uint8_t* keep = nullptr;
  MaskStrides keep_strides{};
  DType dtype{}; // of q, k, v and out
  // Aligned to 64 bytes; attention_scratch_bytes() per thread. The scratch
  // limits the number of threads, and must suffice for one.
  void* scratch = nullptr;
  int64_t scratch_bytes = 0;
};

// The scratch of one thread; depends only on `size`.
int64_t attention_scratch_bytes(const AttentionArgs& args);

void attention(const AttentionArgs& args);

// The gradients of q, k and v, with their strides, from that of out.
struct AttentionBackwardArgs {
  // The forward pass's arguments, with its results in `out` and `log_sums`;
  // kv_heads is heads, no size is 0, and all threads have
  // attention_backward_scratch_bytes() of scratch.
  AttentionArgs forward;
  const void* grad_out = nullptr;
  void* grad_q = nullptr;
  void* grad_k = nullptr;
  void* grad_v = nullptr;
  HeadStrides grad_out_strides{}, grad_q_strides{}, grad_k_strides{},
      grad_v_strides{};
};

// The scratch of one thread; depends only on sizes.
int64_t attention_backward_scratch_bytes(const AttentionBackwardArgs& args);

void attention_backward(const AttentionBackwardArgs& args);

} // namespace at::native::zendnn::kernels
