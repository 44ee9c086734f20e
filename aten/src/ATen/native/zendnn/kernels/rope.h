// Rotary position embedding.
#pragma once

#include "types.h"

namespace at::native::zendnn::kernels {

// Rotates pairs of the first `rotary` elements of each row, an even number, by
// the angles whose cosines and sines the tables hold for each element, and
// copies the others. A pair (a, b) becomes (a·cos - b·sin, b·cos + a·sin); the
// products are rounded before they are added. The last dimension has a stride
// of 1 everywhere; others may have a stride of 0 in x and in the tables. out
// must not overlap itself or x.
struct RopeArgs {
  const void* x = nullptr;
  const int64_t* x_strides = nullptr;
  const void* cos = nullptr;
  const int64_t* cos_strides = nullptr;
  const void* sin = nullptr;
  const int64_t* sin_strides = nullptr;
  void* out = nullptr;
  const int64_t* out_strides = nullptr;
  const int64_t* sizes = nullptr;
  int64_t ndim = 0; // from 1 to 8
  int64_t rotary = 0;
  bool interleaved = false; // pairs are neighbours, not `rotary` / 2 apart
  DType dtype{};            // of all
};

void rope(const RopeArgs& args);

} // namespace at::native::zendnn::kernels
