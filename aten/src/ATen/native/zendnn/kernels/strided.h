// Loops over operands of one shape with different strides.
#pragma once

#include "vec.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

constexpr int kMaxDims = 8;

// The innermost dimension is the last one.
template <int operands>
struct Loops {
  int ndim = 0;
  int64_t sizes[kMaxDims] = {};
  int64_t strides[operands][kMaxDims] = {};

  int64_t total() const {
    int64_t product = 1;
    for (int d = 0; d < ndim; ++d)
      product *= sizes[d];
    return product;
  }

  void swap(int a, int b) {
    exchange(sizes[a], sizes[b]);
    for (auto& s : strides)
      exchange(s[a], s[b]);
  }

  static void exchange(int64_t& a, int64_t& b) {
    const int64_t old = a;
    a = b;
    b = old;
  }
};

// The same loops with as few dimensions as possible, but at least one, ordered
// by the strides of the first operand. Null strides are contiguous.
template <int operands>
Loops<operands> make_loops(
    int64_t ndim,
    const int64_t* sizes,
    const int64_t* const (&strides)[operands]) {
  Loops<operands> all;
  int64_t contiguous = 1;
  for (int64_t d = ndim - 1; d >= 0; --d) {
    if (sizes[d] != 1) {
      int place = all.ndim++; // innermost first
      all.sizes[place] = sizes[d];
      for (int k = 0; k < operands; ++k)
        all.strides[k][place] = strides[k] ? strides[k][d] : contiguous;
      for (; place > 0 && all.strides[0][place] < all.strides[0][place - 1];
           --place)
        all.swap(place, place - 1);
    }
    contiguous *= sizes[d];
  }
  Loops<operands> merged;
  for (int d = 0; d < all.ndim; ++d) {
    const int last = merged.ndim - 1;
    bool follows = last >= 0;
    for (int k = 0; follows && k < operands; ++k)
      follows =
          all.strides[k][d] == merged.strides[k][last] * merged.sizes[last];
    if (follows) {
      merged.sizes[last] *= all.sizes[d];
      continue;
    }
    merged.sizes[merged.ndim] = all.sizes[d];
    for (int k = 0; k < operands; ++k)
      merged.strides[k][merged.ndim] = all.strides[k][d];
    ++merged.ndim;
  }
  if (merged.ndim == 0) {
    merged.ndim = 1;
    merged.sizes[0] = 1;
    for (auto& s : merged.strides)
      s[0] = 1;
  }
  for (int a = 0, b = merged.ndim - 1; a < b; ++a, --b)
    merged.swap(a, b);
  return merged;
}

template <int operands>
struct Offsets {
  int64_t at[operands];
};

// The offset in each operand of element `index` of the outer dimensions,
// without the last `inner` ones.
template <int operands>
Offsets<operands>
outer_offsets(const Loops<operands>& loops, int inner, int64_t index) {
  Offsets<operands> offsets{};
  for (int d = loops.ndim - 1 - inner; d >= 0; --d) {
    const int64_t place = index % loops.sizes[d];
    index /= loops.sizes[d];
    for (int k = 0; k < operands; ++k)
      offsets.at[k] += place * loops.strides[k][d];
  }
  return offsets;
}

// Advances `count` elements along a dimension.
template <int operands>
void step(
    const Loops<operands>& loops,
    int dim,
    int64_t count,
    int64_t (&place)[kMaxDims],
    Offsets<operands>& offsets) {
  place[dim] += count;
  for (int k = 0; k < operands; ++k)
    offsets.at[k] += count * loops.strides[k][dim];
}

// Calls f(offsets, count) for each run of the elements [begin, end) along the
// innermost dimension.
template <int operands, class F>
void each_run(const Loops<operands>& loops, int64_t begin, int64_t end, F f) {
  const int last = loops.ndim - 1;
  const int64_t size = loops.sizes[last];
  int64_t place[kMaxDims];
  int64_t rest = begin;
  for (int d = last; d >= 0; --d) {
    place[d] = rest % loops.sizes[d];
    rest /= loops.sizes[d];
  }
  Offsets<operands> offsets = outer_offsets(loops, 0, begin);
  while (begin < end) {
    const int64_t count = min(size - place[last], end - begin);
    f(offsets, count);
    begin += count;
    step(loops, last, count, place, offsets);
    for (int d = last; d > 0 && place[d] == loops.sizes[d]; --d) {
      step(loops, d, -loops.sizes[d], place, offsets);
      step(loops, d - 1, 1, place, offsets);
      // Runs of a whole dimension dominate the time.
      if (d == last)
        while (place[d - 1] < loops.sizes[d - 1] && begin + size <= end) {
          f(offsets, size);
          begin += size;
          step(loops, d - 1, 1, place, offsets);
        }
    }
  }
}

// Elements of a run per step, if an operand is collected or an operation
// follows: they stay in the L1 cache.
constexpr int64_t kChunk = 1024;

// The elements from `first` on, contiguous, copied to `space` if needed; a
// stride of 0 repeats one element.
template <class T>
const T* side_by_side(
    const T* data,
    int64_t stride,
    int64_t first,
    int64_t count,
    T* space) {
  if (stride == 1)
    return data + first;
  for (int64_t i = 0; i < count; ++i)
    space[i] = data[(first + i) * stride];
  return space;
}

} // namespace
} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
