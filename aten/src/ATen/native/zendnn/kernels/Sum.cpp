// Sums and means over any dimensions. Where the innermost one is summed, a
// result is the sum of runs; otherwise results that lie side by side are summed
// row by row.
#include "sum.h"

#include "strided.h"
#include "vec.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

// Results that are summed side by side, and threads that share their terms
// where there is no other work for them.
constexpr int64_t kColumns = 512;
constexpr int kMostParts = 16;

// Sums `count` values by pairs, which makes the exact multiple of equal ones.
template <int count, class Value>
inline Vec sum_pairs(Value value, int first = 0) {
  if constexpr (count == 1)
    return value(first);
  else
    return sum_pairs<count / 2>(value, first) +
           sum_pairs<count / 2>(value, first + count / 2);
}

template <class T>
class Sum {
 public:
  explicit Sum(const SumArgs& args)
      : x_(static_cast<const T*>(args.x)),
        out_(static_cast<T*>(args.out)),
        scale_(args.scale) {
    const Loops<2> all = make_loops<2>(
        args.ndim, args.sizes, {args.x_strides, args.out_strides});
    for (int d = 0; d < all.ndim; ++d) {
      const int64_t x = all.strides[0][d], out = all.strides[1][d];
      rows_ = out != 0;
      if (rows_)
        append<2>(results_, all.sizes[d], {x, out});
      else
        append<1>(terms_, all.sizes[d], {x});
    }
    if (terms_.ndim == 0)
      append<1>(terms_, 1, {1});
    if (results_.ndim == 0)
      append<2>(results_, 1, {1, 1});
    const int last = results_.ndim - 1;
    width_ = results_.sizes[last];
    x_step_ = results_.strides[0][last];
    out_step_ = results_.strides[1][last];
    stride_ = terms_.strides[0][terms_.ndim - 1];
    const int64_t blocks = ceil_div(width_, rows_ ? kColumns : 1);
    block_ = rows_ ? round_up(ceil_div(width_, blocks), kWidth) : 1;
  }

  void run() const {
    const int64_t results = results_.total(), terms = terms_.total();
    if (results == 0)
      return;
    const int64_t blocks = ceil_div(width_, block_);
    const int64_t pieces = results / width_ * blocks;
    const int threads = threads_for(results * terms, kGrain);
    if (pieces < threads) {
      for (int64_t i = 0; i < pieces; ++i)
        share(piece(i / blocks, i % blocks), threads);
      return;
    }
    const int64_t grain = ceil_div(kGrain * pieces, max(results * terms, 1));
    parallel(pieces, 1, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Piece here = piece(i / blocks, i % blocks);
        VecD sums[kVectors];
        clear(here, sums);
        add(here, 0, terms, sums);
        write(here, sums);
      }
    });
  }

 private:
  static constexpr int64_t kVectors = 2 * kColumns / kWidth;

  // Some results side by side, or one.
  struct Piece {
    const T* x;
    T* out;
    int64_t columns;

    int64_t vectors() const {
      return 2 * ceil_div(columns, kWidth);
    }
  };

  template <int operands>
  static void append(
      Loops<operands>& loops,
      int64_t size,
      const int64_t (&strides)[operands]) {
    loops.sizes[loops.ndim] = size;
    for (int k = 0; k < operands; ++k)
      loops.strides[k][loops.ndim] = strides[k];
    ++loops.ndim;
  }

  Piece piece(int64_t row, int64_t block) const {
    const Offsets<2> at = outer_offsets(results_, 1, row);
    const int64_t first = block * block_;
    return {
        x_ + at.at[0] + first * x_step_,
        out_ + at.at[1] + first * out_step_,
        min(block_, width_ - first)};
  }

  static void clear(const Piece& piece, VecD* sums) {
    for (int64_t i = 0; i < piece.vectors(); ++i)
      sums[i] = VecD{};
  }

  // Adds the terms [begin, end) of each result.
  void add(const Piece& piece, int64_t begin, int64_t end, VecD* sums) const {
    if (begin == end)
      return;
    each_run(terms_, begin, end, [&](Offsets<1> at, int64_t count) {
      const T* x = piece.x + at.at[0];
      if (rows_)
        add_rows(x, count, piece.columns, sums);
      else
        sums[0] += sum_of_run(x, count);
    });
  }

  VecD sum_of_run(const T* x, int64_t size) const {
    VecD sum{};
    if (stride_ == 1) {
      int64_t i = 0;
      for (; i + 4 * kWidth <= size; i += 4 * kWidth)
        sum += fold(sum_pairs<4>(
            [&](int v) { return load(x + i + v * kWidth, Full{}); }));
      each_vector(size - i, [&](int64_t more, auto lanes) {
        sum += fold(load(x + i + more, lanes));
      });
      return sum;
    }
    T space[kChunk];
    for (int64_t first = 0; first < size; first += kChunk) {
      const int64_t count = min(size - first, kChunk);
      const T* items = side_by_side(x, stride_, first, count, space);
      each_vector(count, [&](int64_t i, auto lanes) {
        sum += fold(load(items + i, lanes));
      });
    }
    return sum;
  }

  void add_rows(const T* x, int64_t rows, int64_t columns, VecD* sums) const {
    int64_t row = 0;
    if (x_step_ == 1)
      for (; row + 8 <= rows; row += 8)
        add_together<8>(x + row * stride_, columns, sums);
    T space[kColumns];
    for (; row < rows; ++row)
      add_together<1>(
          side_by_side(x + row * stride_, x_step_, 0, columns, space),
          columns,
          sums);
  }

  template <int rows>
  void add_together(const T* x, int64_t columns, VecD* sums) const {
    each_vector(columns, [&](int64_t i, auto lanes) {
      const Vec sum = sum_pairs<rows>(
          [&](int row) { return load(x + row * stride_ + i, lanes); });
      VecD* to = sums + 2 * i / kWidth;
      to[0] += low_doubles(sum);
      to[1] += high_doubles(sum);
    });
  }

  // Each thread adds a part of the terms.
  void share(const Piece& piece, int threads) const {
    VecD parts[kMostParts][kVectors];
    threads = threads < kMostParts ? threads : kMostParts;
    for (int part = 0; part < threads; ++part)
      clear(piece, parts[part]);
    const int64_t terms = terms_.total();
    in_threads(threads, [&](int64_t thread, int64_t count) {
      add(piece,
          terms * thread / count,
          terms * (thread + 1) / count,
          parts[thread]);
    });
    for (int part = 1; part < threads; ++part)
      for (int64_t i = 0; i < piece.vectors(); ++i)
        parts[0][i] += parts[part][i];
    write(piece, parts[0]);
  }

  void write(const Piece& piece, VecD* sums) const {
    if (!rows_)
      sums[0] = VecD{sum_lanes(sums[0])};
    T space[kColumns];
    T* to = out_step_ == 1 ? piece.out : space;
    each_vector(piece.columns, [&](int64_t i, auto lanes) {
      const VecD* from = sums + 2 * i / kWidth;
      store(to + i, narrow(from[0] * scale_, from[1] * scale_), lanes);
    });
    if (out_step_ != 1)
      for (int64_t i = 0; i < piece.columns; ++i)
        piece.out[i * out_step_] = to[i];
  }

  const T* x_;
  T* out_;
  double scale_;
  bool rows_ = false; // whether the innermost dimension is kept
  Loops<2> results_;  // in x and in out
  Loops<1> terms_;
  int64_t width_, block_; // of the innermost results, and those of a piece
  int64_t x_step_, out_step_;
  int64_t stride_; // from term to term
};

} // namespace

void reduce_sum(const SumArgs& args) {
  with_type(args.dtype, [&]<class T>(T*) { Sum<T>(args).run(); });
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
