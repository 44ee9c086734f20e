// Precise sums and means of many numbers: a large float sum would lose the
// digits of small terms.
#pragma once

#include "vec.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

// Sums value(row, i, lanes), a Vec or a similar type, over (rows, cols), and
// calls take with each partial sum, of a run short enough for floats. Short
// rows share a run.
template <class V, class Value, class Take>
void sum_runs(int64_t rows, int64_t cols, V zero, Value value, Take take) {
  constexpr int64_t run = 4096, most = 64;
  const int64_t together = max(min(run / max(cols, 1), most), 1);
  for (int64_t top = 0; top < rows; top += together)
    for (int64_t first = 0; first < cols; first += run) {
      V part = zero;
      for (int64_t row = top; row < min(top + together, rows); ++row)
        part = part + reduce(
                          min(cols - first, run),
                          zero,
                          [&](int64_t i, auto lanes) {
                            return value(row, first + i, lanes);
                          },
                          [](V a, V b) { return a + b; });
      take(part);
    }
}

// The sum of value(row, i, lanes) over (rows, cols), accumulated in double.
template <class Value>
float sum_of_rows(int64_t rows, int64_t cols, Value value) {
  double sum = 0;
  sum_runs(rows, cols, Vec{}, value, [&](Vec part) { sum += sum_lanes(part); });
  return static_cast<float>(sum);
}

// The same for value(i, lanes) of one row.
template <class Value>
float sum_of_many(int64_t size, Value value) {
  return sum_of_rows(
      1, size, [&](int64_t, int64_t i, auto lanes) { return value(i, lanes); });
}

// The mean of (rows, cols), `stride` from row to row: the mean of the first
// vector, plus the mean of differences from it. Terms are divided before they
// are summed, in the first vector by a power of two. So the mean of equal
// numbers is exact, no row of one sign overflows, and the sum stays small and
// precise.
template <class T>
float mean_of(const T* x, int64_t rows, int64_t cols, int64_t stride) {
  float origin = cols < kWidth
                     ? load_one(x)
                     : sum_lanes(load(x, Full{}) * splat(1.0F / kWidth));
  if (!__builtin_isfinite(origin)) // keeps infinities
    origin = 0;
  const float share = 1 / static_cast<float>(rows * cols);
  return origin +
         sum_of_rows(rows, cols, [&](int64_t row, int64_t i, auto lanes) {
           return (load(x + row * stride + i, lanes) - origin) * share;
         });
}

} // namespace
} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
