// Copies between any strides, conversions and gathers.
#include "memory.h"

#include "strided.h"
#include "vec.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

// Minimum bytes per thread.
constexpr int64_t kGrainBytes = 128 * 1024;

// Copies a short run without a call; its last bytes may be copied twice.
inline void copy_bytes(char* dst, const char* src, int64_t size) {
  constexpr int64_t step = 64;
  if (size < step || size > 1024) {
    __builtin_memcpy(dst, src, size);
    return;
  }
  for (int64_t i = 0; i < size - step; i += step)
    __builtin_memcpy(dst + i, src + i, step);
  __builtin_memcpy(dst + size - step, src + size - step, step);
}

template <class Item>
void copy_runs(const Loops<2>& loops, const Item* src, Item* dst) {
  const int last = loops.ndim - 1;
  const int64_t to = loops.strides[0][last], from = loops.strides[1][last];
  const int64_t items = 64 / int64_t{sizeof(Item)};
  const int64_t grain = kGrainBytes / int64_t{sizeof(Item)};
  parallel(loops.total(), items, grain, [&](int64_t begin, int64_t end) {
    each_run(loops, begin, end, [&](Offsets<2> at, int64_t count) {
      Item* d = dst + at.at[0];
      const Item* s = src + at.at[1];
      if (to == 1 && from == 1)
        copy_bytes((char*)d, (const char*)s, count * int64_t{sizeof(Item)});
      else if (from == 0)
        for (int64_t i = 0; i < count; ++i)
          d[i * to] = *s;
      else
        for (int64_t i = 0; i < count; ++i)
          d[i * to] = s[i * from];
    });
  });
}

// Copies a square of kWidth rows: dst[i, j] = src[j, i].
template <class Item>
void copy_square(
    const Item* src,
    int64_t src_stride,
    Item* dst,
    int64_t dst_stride) {
  if constexpr (sizeof(Item) <= 4) {
    Vec square[kWidth];
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i)
      square[i] = as_float(load_bits(src + i * src_stride, Full{}));
    transpose(square);
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i)
      store_bits(dst + i * dst_stride, as_int(square[i]), Full{});
  } else {
    for (int i = 0; i < kWidth; ++i)
      for (int j = 0; j < kWidth; ++j)
        dst[i * dst_stride + j] = src[j * src_stride + i];
  }
}

// For an innermost dimension that is contiguous in dst, and a previous one that
// is contiguous in src. A thread copies bands of kWidth rows of dst.
template <class Item>
void copy_transposed(const Loops<2>& loops, const Item* src, Item* dst) {
  const int last = loops.ndim - 1;
  const int64_t rows = loops.sizes[last - 1], cols = loops.sizes[last];
  const int64_t dst_stride = loops.strides[0][last - 1];
  const int64_t src_stride = loops.strides[1][last];
  const int64_t bands = ceil_div(rows, kWidth);
  const int64_t outer = loops.total() / (rows * cols);
  const int64_t grain =
      ceil_div(kGrainBytes, cols * kWidth * int64_t{sizeof(Item)});
  parallel(outer * bands, 1, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Offsets<2> at = outer_offsets(loops, 2, i / bands);
      const int64_t row = i % bands * kWidth;
      Item* d = dst + at.at[0] + row * dst_stride;
      const Item* s = src + at.at[1] + row;
      const int64_t height = min(rows - row, kWidth);
      int64_t col = 0;
      if (height == kWidth)
        for (; col + kWidth <= cols; col += kWidth)
          copy_square(s + col * src_stride, src_stride, d + col, dst_stride);
      for (; col < cols; ++col)
        for (int64_t r = 0; r < height; ++r)
          d[r * dst_stride + col] = s[col * src_stride + r];
    }
  });
}

// Whether the copy is a transposition; if so, moves the two dimensions last.
bool find_transposition(Loops<2>& loops) {
  const int last = loops.ndim - 1;
  if (loops.strides[0][last] != 1 || loops.strides[1][last] == 1)
    return false;
  for (int d = last - 1; d >= 0; --d)
    if (loops.strides[1][d] == 1 && loops.sizes[d] >= 4) {
      for (; d < last - 1; ++d)
        loops.swap(d, d + 1);
      return true;
    }
  return false;
}

template <class Item>
void copy_items(
    const Loops<2>& loops,
    bool transposed,
    const void* src,
    void* dst) {
  const auto* from = static_cast<const Item*>(src);
  auto* to = static_cast<Item*>(dst);
  if (transposed)
    copy_transposed(loops, from, to);
  else
    copy_runs(loops, from, to);
}

} // namespace

void copy_strided(const CopyArgs& args) {
  for (int64_t d = 0; d < args.ndim; ++d)
    if (args.sizes[d] == 0)
      return;
  Loops<2> loops = make_loops<2>(
      args.ndim, args.sizes, {args.dst_strides, args.src_strides});
  const bool transposed = find_transposition(loops);
  switch (args.itemsize) {
    case 1:
      return copy_items<uint8_t>(loops, transposed, args.src, args.dst);
    case 2:
      return copy_items<uint16_t>(loops, transposed, args.src, args.dst);
    case 4:
      return copy_items<uint32_t>(loops, transposed, args.src, args.dst);
    default:
      return copy_items<uint64_t>(loops, transposed, args.src, args.dst);
  }
}

void triangle(const TriangleArgs& args) {
  const int64_t row_bytes = args.cols * args.itemsize;
  const int64_t grain = ceil_div(kGrainBytes, max(row_bytes, 1));
  const auto* x = static_cast<const char*>(args.x);
  auto* out = static_cast<char*>(args.out);
  // In the first row: the first column of the upper triangle, or the end of the
  // lower one.
  const int64_t corner =
      min(max(args.diagonal, -args.rows), args.cols) + (args.upper ? 0 : 1);
  const auto zero = [&](int64_t begin, int64_t end) {
    __builtin_memset(out + begin, 0, end - begin);
  };
  const auto keep = [&](int64_t begin, int64_t end) {
    if (out != x)
      copy_bytes(out + begin, x + begin, end - begin);
  };
  parallel(args.batch * args.rows, 1, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t column = min(max(row % args.rows + corner, 0), args.cols);
      const int64_t first = row * row_bytes, last = first + row_bytes;
      const int64_t middle = first + column * args.itemsize;
      if (args.upper) {
        zero(first, middle);
        keep(middle, last);
      } else {
        keep(first, middle);
        zero(middle, last);
      }
    }
  });
}

bool gather_pairs(const GatherPairsArgs& args) {
  for (int64_t i = 0; i < args.pairs; ++i)
    if (args.row[i] < 0 || args.row[i] >= args.rows || args.col[i] < 0 ||
        args.col[i] >= args.cols)
      return false;
  with_type<float, BFloat16>(args.dtype, [&]<class T>(T*) {
    const int64_t grain =
        ceil_div(kGrainBytes / 8, int64_t{sizeof(T)} * max(args.pairs, 1));
    parallel(args.batch, 1, grain, [&](int64_t begin, int64_t end) {
      // The places of a group's pairs are computed once for the whole batch.
      constexpr int64_t group = 512;
      int64_t places[group];
      for (int64_t first = 0; first < args.pairs; first += group) {
        const int64_t count = min(args.pairs - first, group);
        for (int64_t i = 0; i < count; ++i)
          places[i] = args.row[first + i] * args.row_stride +
                      args.col[first + i] * args.col_stride;
        for (int64_t b = begin; b < end; ++b) {
          const T* x = static_cast<const T*>(args.x) + b * args.batch_stride;
          T* out = static_cast<T*>(args.out) + b * args.out_stride + first;
          for (int64_t i = 0; i < count; ++i)
            out[i] = x[places[i]];
        }
      }
    });
  });
  return true;
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
