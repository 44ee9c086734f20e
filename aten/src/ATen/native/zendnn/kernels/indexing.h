// Elements that tensors of indices choose.
#pragma once

#include "types.h"

namespace at::native::zendnn::kernels {

enum class IndexType { int64, int32 };

// One tensor of indices.
struct Index {
  const void* data = nullptr;
  const int64_t* strides = nullptr; // over the result's dimensions
  IndexType type = IndexType::int64;
  int64_t limit = 0; // each is below it
  int64_t step = 0;  // of x, in elements, from one index to the next
};

constexpr int64_t kMostIndices = 4;

// out = x at the places that the indices add to its own strides, over up to 8
// dimensions. A stride of 0 repeats; out must not overlap the operands. Rows of
// x that share their indices, and lie side by side in both, are fastest.
struct IndexArgs {
  const void* x = nullptr;
  const int64_t* x_strides = nullptr; // over the result's dimensions
  const Index* indices = nullptr;
  int64_t count = 0;      // of indices, from 1 to kMostIndices
  bool from_back = false; // whether indices from -limit to -1 count, too
  void* out = nullptr;    // contiguous
  const int64_t* sizes = nullptr;
  int64_t ndim = 0;
  int64_t itemsize = 4; // 1, 2, 4 or 8 bytes
};

// False if an index is out of range; out is then incomplete.
bool index(const IndexArgs& args);

// What scatter does with what is there; sums are of that dtype.
enum class Scatter { replace, add_float32, add_bfloat16, add_int64 };

// out at the places along a dimension that indices choose = value, or is added
// to. The sizes are those of the indices, of which the dimension itself counts
// as 1. Indices that stay the same along out's innermost dimension are fastest.
struct ScatterArgs {
  const int64_t* indices = nullptr;
  const void* value = nullptr;
  void* out = nullptr;
  const int64_t* sizes = nullptr;
  const int64_t* index_strides = nullptr;
  const int64_t* value_strides = nullptr;
  const int64_t* out_strides = nullptr;
  int64_t ndim = 0;
  // Along the dimension: how many indices, the strides, and what each index is
  // below.
  int64_t count = 0;
  int64_t index_step = 0, value_step = 0, out_step = 0;
  int64_t limit = 0;
  int64_t itemsize = 4; // 1, 2, 4 or 8 bytes
  Scatter mode = Scatter::replace;
};

// False if an index is out of range; out is then incomplete. Several indices
// for one place count one after the other.
bool scatter(const ScatterArgs& args);

} // namespace at::native::zendnn::kernels
