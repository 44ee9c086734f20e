// Writes to tensors whose version they leave alone, so that it does not tell
// that packed weights are stale: those of fused optimizers, of collectives, and
// of batch norms that train to their running statistics. The version stays as
// torch leaves it, since autograd refuses to compute with tensors that have
// another one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace at::native::zendnn::unseen_writes {

void note(const Tensor& written);

// How many were noted in this process.
C10_EXPORT uint64_t count();

// Whether one went to the storage of a tensor after the first `since` ones.
C10_EXPORT bool are_in(const Tensor& tensor, uint64_t since);

} // namespace at::native::zendnn::unseen_writes
