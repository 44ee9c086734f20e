// Writes to tensors whose version they leave alone, so that it does not tell
// that packed weights are stale: those of fused optimizers, of collectives, and
// of batch norms that train to their running statistics. The version stays as
// torch leaves it, since autograd refuses to compute with tensors that have
// another one.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>

namespace at::native::zendnn::unseen_writes {

void note(const Tensor& written);

namespace detail {
C10_EXPORT extern std::atomic<uint64_t> count;
C10_EXPORT bool are_among(const Tensor& tensor, uint64_t since);
} // namespace detail

// How many were noted in this process.
inline uint64_t count() {
  return detail::count.load(std::memory_order_acquire);
}

// Whether one went to the storage of a tensor after the first `since` ones.
// Inline, since compiled graphs ask at each call, of each weight.
inline bool are_in(const Tensor& tensor, uint64_t since) {
  return count() != since && detail::are_among(tensor, since);
}

} // namespace at::native::zendnn::unseen_writes
