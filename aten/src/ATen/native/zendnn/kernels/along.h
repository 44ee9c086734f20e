// Reductions along one dimension, or along neighbours that count as one.
#pragma once

#include "types.h"

namespace at::native::zendnn::kernels {

// x is contiguous (outer, dim, inner), out contiguous (outer, inner).
struct AlongArgs {
  const void* x = nullptr;
  void* out = nullptr;
  int64_t outer = 1;
  int64_t dim = 0;
  int64_t inner = 1; // 1: along the last dimension, the fastest case
  DType dtype{};     // of x and, unless it is said, of out
};

// out = the largest or the smallest element; NaN if there is one.
void amax(const AlongArgs& args);
void amin(const AlongArgs& args);

// out (int64) = the index of the largest element: the first of equal ones, and
// the first NaN if any. dim is at least 1, and below 2³¹ unless inner is 1.
void argmax(const AlongArgs& args);

// out = the logarithm of the sum of powers of e.
void logsumexp(const AlongArgs& args);

} // namespace at::native::zendnn::kernels
