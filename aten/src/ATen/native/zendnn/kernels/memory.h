// Copies and conversions.
#pragma once

#include "types.h"

namespace at::native::zendnn::kernels {

// Copies up to 8 dimensions with any strides (0 in src broadcasts). src and dst
// do not overlap. Contiguous runs, and transposed items of up to 4 bytes, are
// fastest.
struct CopyArgs {
  const void* src = nullptr;
  const int64_t* src_strides = nullptr;
  void* dst = nullptr;
  const int64_t* dst_strides = nullptr;
  const int64_t* sizes = nullptr;
  int64_t ndim = 0;
  int64_t itemsize = 4; // 1, 2, 4 or 8 bytes
};

void copy_strided(const CopyArgs& args);

// Keeps a triangle of matrices, where column - row is at least `diagonal`
// (upper) or at most `diagonal`; the rest is 0. Contiguous; out may be x.
struct TriangleArgs {
  const void* x = nullptr; // (batch, rows, cols)
  void* out = nullptr;
  int64_t batch = 1;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t diagonal = 0;
  bool upper = true;
  int64_t itemsize = 4; // bytes
};

void triangle(const TriangleArgs& args);

// out[b, i] = x[b, row[i], col[i]].
struct GatherPairsArgs {
  const void* x = nullptr; // (batch, rows, cols)
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  int64_t col_stride = 1;
  int64_t batch = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  const int64_t* row = nullptr;
  const int64_t* col = nullptr;
  int64_t pairs = 0;
  void* out = nullptr; // (batch, pairs)
  int64_t out_stride = 0;
  DType dtype{};
};

// False if an index is out of range; out is then incomplete.
bool gather_pairs(const GatherPairsArgs& args);

} // namespace at::native::zendnn::kernels
