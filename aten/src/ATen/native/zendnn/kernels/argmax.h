// Indices of the largest elements.
#pragma once

#include "types.h"

namespace at::native::zendnn::kernels {

// The index of the largest element along dim of contiguous (outer, dim, inner):
// the first of equal ones, and the first NaN if any. out is contiguous (outer,
// inner). dim is at least 1, and below 2³¹ unless inner is 1.
struct ArgmaxArgs {
  const void* x = nullptr;
  int64_t* out = nullptr;
  int64_t outer = 1;
  int64_t dim = 0;
  int64_t inner = 1;
  DType dtype{};
};

void argmax(const ArgmaxArgs& args);

} // namespace at::native::zendnn::kernels
