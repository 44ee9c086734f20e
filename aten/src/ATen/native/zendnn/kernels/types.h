// What the vector kernels' interfaces have in common.
//
// A kernel takes one structure of raw pointers and numbers, so that a call
// reads `layer_norm({.x = x, .out = y, .rows = 128, .cols = 768})`. Sizes and
// strides count elements, unless a name says bytes. A size of 0 is allowed
// everywhere. Kernels compute in float, allocate nothing, keep nothing, and
// split large problems over the current number of OpenMP threads. Inside a
// parallel region they run on the calling thread.
#pragma once

#include <cstdint>

namespace at::native::zendnn::kernels {

enum class DType { float32, bfloat16 };

struct BFloat16 {
  uint16_t bits;
};

// The instruction set that the kernels use: "avx512", "avx2", or "none" where
// this CPU has neither, or the environment variable ZENDNN_MAX_CPU_ISA, read
// once, allows neither; kernels must not be called then.
const char* isa();

} // namespace at::native::zendnn::kernels
