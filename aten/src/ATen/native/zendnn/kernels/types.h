// Common types of the vector kernels' interfaces.
//
// A kernel takes one structure of raw pointers and numbers, as in
// `layer_norm({.x = x, .out = y, .rows = 128, .cols = 768})`. Sizes and strides
// count elements, unless a name says bytes. Sizes may be 0. Kernels compute in
// float, allocate nothing, keep no state, and split large problems over the
// current number of OpenMP threads. Inside a parallel region they run on the
// calling thread. Without AVX2, kernels must not be called.
#pragma once

#include <cstdint>

namespace at::native::zendnn::kernels {

enum class DType { float32, bfloat16 };

struct BFloat16 {
  uint16_t bits;
};

} // namespace at::native::zendnn::kernels
