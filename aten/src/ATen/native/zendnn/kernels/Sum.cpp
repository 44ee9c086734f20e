// Sums and means over any dimensions. Those of floating-point numbers go run by
// run if the innermost one is summed, otherwise row by row for neighbouring
// results.
#include "sum.h"

#include "strided.h"
#include "vec.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

// Results that are summed together, row by row or run by run.
constexpr int64_t kColumns = 512, kRuns = 64;
// Maximum threads that share the terms of too few results.
constexpr int kMostParts = 16;

// Sums `count` values pairwise, so that the sum of equal ones is exact.
template <int count, class Value>
inline Vec sum_pairs(Value value, int first = 0) {
  if constexpr (count == 1)
    return value(first);
  else
    return sum_pairs<count / 2>(value, first) +
           sum_pairs<count / 2>(value, first + count / 2);
}

// The sum of two vectors of elements, in any order of lanes.
inline Vec load_two(const float* x) {
  return load(x, Full{}) + load(x + kWidth, Full{});
}
inline Vec load_two(const BFloat16* x) {
  const VecI both = load_bits(reinterpret_cast<const uint32_t*>(x), Full{});
  return as_float(both << 16) + as_float(both & ~0xffff);
}

template <class T>
double sum_of_run(const T* x, int64_t size) {
  constexpr int64_t two = 2 * kWidth;
  constexpr int pairs = 8 / sizeof(T); // longer steps would read more slowly
  VecD sum{};
  int64_t i = 0;
  for (; i + pairs * two <= size; i += pairs * two)
    sum += fold(sum_pairs<pairs>(
        [&](int pair) { return load_two(x + i + pair * two); }));
  for (; i + two <= size; i += two)
    sum += fold(load_two(x + i));
  if (const int64_t rest = size - i; rest > kWidth)
    sum +=
        fold(load(x + i, Full{}) + load(x + i + kWidth, Tail(rest - kWidth)));
  else
    sum += fold(load(x + i, Tail(rest)));
  return sum_lanes(sum);
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
  }

  void run() const {
    const int64_t results = results_.total(), terms = terms_.total();
    const int threads = threads_for(results * terms, kGrain);
    int64_t blocks = ceil_div(width_, rows_ ? kColumns : kRuns);
    if (blocks > 1) // equal parts for threads
      blocks = round_up(blocks, threads);
    const int64_t block = round_up(ceil_div(width_, blocks), kWidth);
    blocks = ceil_div(width_, block);
    const int64_t pieces = results / width_ * blocks;
    const auto piece = [&](int64_t i) {
      const Offsets<2> at = outer_offsets(results_, 1, i / blocks);
      const int64_t first = i % blocks * block;
      return Piece{
          x_ + at.at[0] + first * x_step_,
          out_ + at.at[1] + first * out_step_,
          min(block, width_ - first)};
    };
    if (pieces < threads) {
      for (int64_t i = 0; i < pieces; ++i)
        share(piece(i), threads);
      return;
    }
    const int64_t grain = ceil_div(kGrain * pieces, max(results * terms, 1));
    parallel(pieces, 1, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        double sums[kColumns];
        add(piece(i), 0, terms, sums);
        write(piece(i), sums);
      }
    });
  }

 private:
  // A range of results.
  struct Piece {
    const T* x;
    T* out;
    int64_t size;
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

  // The sums of the terms [begin, end) of each result.
  void add(const Piece& piece, int64_t begin, int64_t end, double* sums) const {
    for (int64_t i = 0; i < round_up(piece.size, kWidth); ++i)
      sums[i] = 0;
    if (begin == end)
      return;
    each_run(terms_, begin, end, [&](Offsets<1> at, int64_t count) {
      const T* x = piece.x + at.at[0];
      if (rows_)
        add_rows(x, count, piece.size, sums);
      else
        for (int64_t i = 0; i < piece.size; ++i)
          sums[i] += sum_of_terms(x + i * x_step_, count);
    });
  }

  double sum_of_terms(const T* x, int64_t size) const {
    if (stride_ == 1)
      return sum_of_run(x, size);
    double sum = 0;
    T space[kChunk];
    for (int64_t first = 0; first < size; first += kChunk) {
      const int64_t count = min(size - first, kChunk);
      sum += sum_of_run(side_by_side(x, stride_, first, count, space), count);
    }
    return sum;
  }

  void add_rows(const T* x, int64_t rows, int64_t columns, double* sums) const {
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
  void add_together(const T* x, int64_t columns, double* sums) const {
    each_vector(columns, [&](int64_t i, auto lanes) {
      const Vec sum = sum_pairs<rows>(
          [&](int row) { return load(x + row * stride_ + i, lanes); });
      double *low = sums + i, *high = low + kWidth / 2;
      store(low, load(low) + low_doubles(sum));
      store(high, load(high) + high_doubles(sum));
    });
  }

  // Each thread sums a part of the terms.
  void share(const Piece& piece, int threads) const {
    double parts[kMostParts][kColumns];
    int count = 1;
    in_threads(
        threads < kMostParts ? threads : kMostParts,
        [&](int64_t thread, int64_t all) {
          const int64_t terms = terms_.total();
          add(piece,
              terms * thread / all,
              terms * (thread + 1) / all,
              parts[thread]);
          if (thread == 0)
            count = static_cast<int>(all);
        });
    for (int part = 1; part < count; ++part)
      for (int64_t i = 0; i < piece.size; ++i)
        parts[0][i] += parts[part][i];
    write(piece, parts[0]);
  }

  void write(const Piece& piece, const double* sums) const {
    T space[kColumns];
    T* to = out_step_ == 1 ? piece.out : space;
    each_vector(piece.size, [&](int64_t i, auto lanes) {
      const VecD low = load(sums + i), high = load(sums + i + kWidth / 2);
      store(to + i, narrow(low * scale_, high * scale_), lanes);
    });
    if (out_step_ != 1)
      for (int64_t i = 0; i < piece.size; ++i)
        piece.out[i * out_step_] = to[i];
  }

  const T* x_;
  T* out_;
  double scale_;
  bool rows_ = false; // the innermost dimension is kept
  Loops<2> results_;  // in x and in out
  Loops<1> terms_;
  // Size and steps of the innermost results, and the stride of the terms.
  int64_t width_, x_step_, out_step_, stride_;
};

// Threads share results; each adds up its results' terms run by run.
template <class T>
void sum_up(const IntegerSumArgs& args) {
  int64_t kept[kMaxDims], summed[kMaxDims];
  for (int64_t d = 0; d < args.ndim; ++d) {
    kept[d] = args.out_strides[d] != 0 ? args.sizes[d] : 1;
    summed[d] = args.out_strides[d] != 0 ? 1 : args.sizes[d];
  }
  const Loops<2> results =
      make_loops<2>(args.ndim, kept, {args.x_strides, args.out_strides});
  const Loops<1> terms = make_loops<1>(args.ndim, summed, {args.x_strides});
  const int64_t count = results.total(), each = terms.total();
  const int64_t x_step = results.strides[0][results.ndim - 1],
                out_step = results.strides[1][results.ndim - 1],
                stride = terms.strides[0][terms.ndim - 1];
  const T* x = static_cast<const T*>(args.x);
  parallel(count, 1, ceil_div(kGrain, each), [&](int64_t begin, int64_t end) {
    each_run(results, begin, end, [&](Offsets<2> at, int64_t size) {
      for (int64_t i = 0; i < size; ++i) {
        const T* first = x + at.at[0] + i * x_step;
        uint64_t sum = 0;
        each_run(terms, 0, each, [&](Offsets<1> term, int64_t run) {
          for (int64_t j = 0; j < run; ++j)
            sum += static_cast<uint64_t>(first[term.at[0] + j * stride]);
        });
        args.out[at.at[1] + i * out_step] = static_cast<int64_t>(sum);
      }
    });
  });
}

} // namespace

void reduce_sum(const SumArgs& args) {
  for (int64_t d = 0; d < args.ndim; ++d)
    if (args.sizes[d] == 0 && args.out_strides[d] != 0)
      return;
  with_type<float, BFloat16>(
      args.dtype, [&]<class T>(T*) { Sum<T>(args).run(); });
}

void integer_sum(const IntegerSumArgs& args) {
  args.boolean ? sum_up<uint8_t>(args) : sum_up<int64_t>(args);
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
