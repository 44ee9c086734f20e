// Comparisons, arithmetic and logic of integers, and running sums: what masks
// and positions are made with.
#pragma once

#include "types.h"

#include <ATen/native/zendnn/kernels/functions.h>

namespace at::native::zendnn::kernels {

enum class PairType { int64, boolean, float32, bfloat16 };

// out = a ∘ b over up to 8 dimensions. A stride of 0 broadcasts an operand; out
// must not overlap the operands. Comparisons make one byte per element, of 0 or
// 1, and others the dtype of a and b, which is int64, or boolean for logic.
// Sums, differences and products of int64 wrap around; logic is bit by bit.
// Inner strides of 1 or 0 are fastest.
struct PairArgs {
  const void* a = nullptr;
  const int64_t* a_strides = nullptr;
  const void* b = nullptr;
  const int64_t* b_strides = nullptr;
  void* out = nullptr;
  const int64_t* out_strides = nullptr; // null: contiguous
  const int64_t* sizes = nullptr;
  int64_t ndim = 0;
  Pair algorithm = Pair::eq;
  PairType dtype = PairType::int64; // of a and b
};

void pair(const PairArgs& args);

// out[i][j][k] = Σ x[i][0..j][k] of (outer, dim, inner) numbers: int64 of int64
// or boolean, which wraps around, or float32 of float32, summed up in float64.
struct CumsumArgs {
  const void* x = nullptr;
  void* out = nullptr;
  int64_t outer = 0, dim = 0, inner = 0;
  PairType dtype = PairType::int64; // of x
};

void cumsum(const CumsumArgs& args);

} // namespace at::native::zendnn::kernels
