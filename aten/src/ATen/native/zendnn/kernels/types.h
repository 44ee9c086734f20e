// Common types of the vector kernels' interfaces.
//
// A kernel takes one structure of raw pointers and numbers, as in
// `layer_norm({.x = x, .out = y, .rows = 128, .cols = 768})`. Sizes and strides
// count elements, unless a name says bytes. Sizes may be 0. Kernels compute in
// float, allocate nothing, keep no state, and split large problems over the
// current number of OpenMP threads. Inside a parallel region they run on the
// calling thread. Without AVX2, kernels must not be called.
#pragma once

#include <ATen/native/zendnn/kernels/dtypes.h>

#include <cstdint>

namespace at::native::zendnn::kernels {

struct BFloat16 {
  uint16_t bits;
};
struct Half {
  uint16_t bits;
};

// Throws std::invalid_argument: a kernel does not take this dtype.
[[noreturn]] void refuse(DType dtype);

} // namespace at::native::zendnn::kernels
