// Normalisation and softmax. Each pass reads rows again from the cache, so that
// all sums are of well-scaled numbers.
#include "normalization.h"

#include "along.h"
#include "reduction.h"
#include "vec.h"
#include "vecmath.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

template <bool centred, class T, class W>
void norm_row(const NormArgs& args, int64_t row) {
  const int64_t first = row * args.cols;
  const T* x = static_cast<const T*>(args.x) + first;
  const T* residual =
      args.residual ? static_cast<const T*>(args.residual) + first : nullptr;
  const W* weight = static_cast<const W*>(args.weight);
  const W* bias = static_cast<const W*>(args.bias);
  T* out = static_cast<T*>(args.out) + first;
  const float cols = static_cast<float>(args.cols);

  if (residual || args.sum_out) {
    // The sum is buffered in its own row, or in that of the result.
    T* sums = args.sum_out ? static_cast<T*>(args.sum_out) + first : out;
    each_vector(args.cols, [&](int64_t i, auto lanes) {
      Vec v = load(x + i, lanes);
      if (residual)
        v = v + load(residual + i, lanes);
      store(sums + i, v, lanes);
    });
    x = sums;
  }

  float middle = centred ? mean_of(x, 1, args.cols, 0) : 0;
  if (!__builtin_isfinite(middle)) // as in torch
    middle = __builtin_nanf("");
  const Vec mean = splat(middle);
  const float squares = sum_of_many(args.cols, [&](int64_t i, auto lanes) {
    const Vec d = load(x + i, lanes) - mean;
    return d * d;
  });
  const float rstd = 1 / __builtin_sqrtf(squares / cols + args.eps);
  if (args.mean_out) {
    store_one(static_cast<W*>(args.mean_out) + row, mean[0]);
    store_one(static_cast<W*>(args.rstd_out) + row, rstd);
  }
  const Vec factor = splat(rstd);
  each_vector(args.cols, [&](int64_t i, auto lanes) {
    Vec y = (load(x + i, lanes) - mean) * factor;
    if (weight)
      y = y * load(weight + i, lanes);
    if (bias)
      y = y + load(bias + i, lanes);
    else if (centred)
      y = y + splat(0); // as in torch: turns -0 into 0
    store(out + i, y, lanes);
  });
}

template <bool centred>
void norm(const NormArgs& args) {
  with_type<float, BFloat16>(args.dtype, [&]<class T>(T*) {
    with_type<float, BFloat16>(args.weight_dtype, [&]<class W>(W*) {
      const int64_t grain = ceil_div(kGrain, max(args.cols, 1));
      parallel(args.rows, 1, grain, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row)
          norm_row<centred, T, W>(args, row);
      });
    });
  });
}

// Numbers buffered on the stack, in the L2 cache.
constexpr int64_t kSpace = 32768;

// Multiplication by it divides powers by sum + lost, and rounds only the
// quotient.
struct Reciprocal {
  Vec high, low;

  Vec operator*(Vec power) const {
    return multiply_add(power, high, power * low);
  }
};
inline Reciprocal reciprocal(Vec sum, Vec lost) {
  const Vec high = 1.0f / sum;
  const Vec rest = multiply_add(-high, sum, splat(1.0f)) - high * lost;
  return {high, rest * high};
}

// A sum, per lane, of numbers from 0 to 1, and its rounding error so far. It
// starts at an extra 1, so that each number is the smaller term.
struct CompensatedSum {
  Vec one_more = splat(1), lost{};

  void add(Vec x) {
    const Vec before = one_more;
    one_more += x;
    lost += before - one_more + x;
  }
  Vec sum() const {
    return one_more - 1.0f;
  }
};

// log(sum + lost), precise even for a sum near 1.
inline Vec log_of(Vec sum, Vec lost) {
  return log(sum) + lost / sum;
}

// Softmax of up to kWidth rows, whose sums share one logarithm or division.
template <class T>
void softmax_rows(
    const T* x,
    T* out,
    int64_t rows,
    int64_t size,
    float lowest,
    bool log) {
  // float32 powers are buffered in out; bfloat16 ones would lose digits there.
  constexpr bool in_out = sizeof(T) == sizeof(float);
  float space[in_out ? 1 : kSpace];
  const bool wait = !log && (in_out || rows * size <= kSpace);
  const auto place = [&](int64_t i) {
    if constexpr (in_out)
      return out + i;
    else
      return space + i;
  };
  float tops[kWidth] = {}, sums[kWidth] = {}, lost[kWidth] = {};
  for (int64_t row = 0; row < rows; ++row)
    tops[row] = max_of(size, [&](int64_t i, auto lanes) {
      return load(x + row * size + i, lanes);
    });
  const PowersBelow powers_of(load(tops));
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = row * size;
    const PowersBelow power_of = powers_of.of_lane(row);
    CompensatedSum powers;
    each_vector(size, [&](int64_t i, auto lanes) {
      const Vec power = power_of(load(x + first + i, lanes), lowest);
      if (wait)
        store(place(first + i), power, lanes);
      powers.add(keep(power, lanes, Vec{}));
    });
    const double sum = sum_in_double(powers.sum(), powers.lost);
    sums[row] = static_cast<float>(sum);
    lost[row] = static_cast<float>(sum - sums[row]);
  }
  float logs[kWidth] = {}, highs[kWidth] = {}, lows[kWidth] = {};
  if (log) {
    store(logs, log_of(load(sums), load(lost)));
  } else {
    const Reciprocal factors = reciprocal(load(sums), load(lost));
    store(highs, factors.high);
    store(lows, factors.low);
  }
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = row * size;
    if (log) {
      const Vec top = splat(tops[row]), end = splat(logs[row]);
      each_vector(size, [&](int64_t i, auto lanes) {
        const Vec y = load(x + first + i, lanes) - top - end;
        store(out + first + i, y, lanes);
      });
      continue;
    }
    const PowersBelow power_of = powers_of.of_lane(row);
    const Reciprocal factor{splat(highs[row]), splat(lows[row])};
    each_vector(size, [&](int64_t i, auto lanes) {
      const Vec power = wait ? load(place(first + i), lanes)
                             : power_of(load(x + first + i, lanes), lowest);
      store(out + first + i, factor * power, lanes);
    });
  }
}

// Softmax down up to kBlock neighbouring columns, `stride` from row to row.
// They are read once and written once, since long strides miss the caches.
constexpr int64_t kBlock = 64;

template <class T>
void softmax_block(
    const T* x,
    T* out,
    int64_t size,
    int64_t stride,
    int64_t cols,
    float lowest,
    bool log) {
  float space[kSpace], top[kBlock], end[kBlock], low[kBlock];
  const int64_t width = round_up(cols, kWidth);
  const auto each = [&](auto f) {
    for (int64_t i = 0; i < width; i += kWidth)
      f(i);
  };
  each([&](int64_t i) { store(top + i, splat(-kInfinity)); });
  for (int64_t row = 0; row < size; ++row)
    each_vector(cols, [&](int64_t i, auto lanes) {
      const Vec v = load(x + row * stride + i, lanes);
      store(space + row * width + i, v);
      store(top + i, max(v, load(top + i)));
    });
  // Vector by vector of columns, so that their state stays in registers.
  each([&](int64_t i) {
    const Vec highest = load(top + i);
    const PowersBelow power_of(highest);
    CompensatedSum powers;
    for (int64_t row = 0; row < size; ++row) {
      float* place = space + row * width + i;
      const Vec v = load(place), power = power_of(v, lowest);
      store(place, log ? v - highest : power);
      powers.add(power);
    }
    if (log) {
      store(end + i, log_of(powers.sum(), powers.lost));
      return;
    }
    const Reciprocal factor = reciprocal(powers.sum(), powers.lost);
    store(end + i, factor.high);
    store(low + i, factor.low);
  });
  for (int64_t row = 0; row < size; ++row)
    each_vector(cols, [&](int64_t i, auto lanes) {
      const Vec v = load(space + row * width + i);
      const Vec y = log ? v - load(end + i)
                        : Reciprocal{load(end + i), load(low + i)} * v;
      store(out + row * stride + i, y, lanes);
    });
}

// For shorter rows, one row per lane is cheaper than a reduction of vectors per
// row.
constexpr int64_t kShort = 48;

// Softmax of up to kWidth short rows.
template <class T>
void softmax_short_rows(
    const T* x,
    T* out,
    int64_t rows,
    int64_t size,
    float lowest,
    bool log) {
  float columns[kShort * kWidth]; // one row per lane
  if (size < 1)                   // GCC would warn
    __builtin_unreachable();
  each_vector(size, [&](int64_t i, auto lanes) {
    Vec square[kWidth];
#pragma GCC unroll 16
    for (int64_t row = 0; row < kWidth; ++row)
      square[row] = load(x + min(row, rows - 1) * size + i, lanes);
    transpose(square);
#pragma GCC unroll 16
    for (int64_t j = 0; j < kWidth; ++j)
      store(columns + (i + j) * kWidth, square[j]);
  });
  softmax_block(columns, columns, size, kWidth, kWidth, lowest, log);
  each_vector(size, [&](int64_t i, auto lanes) {
    Vec square[kWidth];
#pragma GCC unroll 16
    for (int64_t j = 0; j < kWidth; ++j)
      square[j] = load(columns + (i + j) * kWidth);
    transpose(square);
    for (int64_t row = 0; row < rows; ++row)
      store(out + row * size + i, square[row], lanes);
  });
}

// Softmax down one vector of columns of any size.
template <class T, class Lanes>
void softmax_columns(
    const T* x,
    T* out,
    int64_t size,
    int64_t stride,
    float lowest,
    bool log,
    Lanes lanes) {
  Vec top = splat(-kInfinity);
  for (int64_t i = 0; i < size; ++i)
    top = max(load(x + i * stride, lanes), top);
  const PowersBelow power_of(top);
  CompensatedSum powers;
  for (int64_t i = 0; i < size; ++i)
    powers.add(power_of(load(x + i * stride, lanes), lowest));
  const Vec base = log_of(powers.sum(), powers.lost);
  const Reciprocal factor = reciprocal(powers.sum(), powers.lost);
  for (int64_t i = 0; i < size; ++i) {
    const Vec v = load(x + i * stride, lanes);
    const Vec y = log ? v - top - base : factor * power_of(v, lowest);
    store(out + i * stride, y, lanes);
  }
}

// Calls f(outer, first, lanes) for each vector of columns of (outer, inner).
template <class F>
void each_column(int64_t outer, int64_t dim, int64_t inner, F f) {
  const int64_t vectors = ceil_div(inner, kWidth);
  const int64_t grain = ceil_div(kGrain, max(dim, 1) * kWidth);
  parallel(outer * vectors, 1, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % vectors * kWidth;
      if (inner - first >= kWidth)
        f(i / vectors, first, Full{});
      else
        f(i / vectors, first, Tail(inner - first));
    }
  });
}

// log(Σ exp(x)) of a row.
template <class T>
float log_of_powers(const T* x, int64_t size) {
  const auto value = [&](int64_t i, auto lanes) { return load(x + i, lanes); };
  const Vec most = reduce(size, splat(-kInfinity), value, max_or_nan);
  const float top = max_lanes(most);
  if (any_nan(most) || !__builtin_isfinite(top))
    return any_nan(most) ? __builtin_nanf("") : top;
  const PowersBelow power_of(splat(top));
  CompensatedSum powers;
  each_vector(size, [&](int64_t i, auto lanes) {
    powers.add(keep(power_of(load(x + i, lanes), -104.0f), lanes, Vec{}));
  });
  const double sum = sum_in_double(powers.sum(), powers.lost);
  const float high = static_cast<float>(sum);
  return top + log_of(splat(high), splat(static_cast<float>(sum - high)))[0];
}

} // namespace

void layer_norm(const NormArgs& args) {
  norm<true>(args);
}

void rms_norm(const NormArgs& args) {
  norm<false>(args);
}

void softmax(const SoftmaxArgs& args) {
  with_type<float, BFloat16>(args.dtype, [&]<class T>(T*) {
    const T* x = static_cast<const T*>(args.x);
    T* out = static_cast<T*>(args.out);
    // The lowest exponent whose power is normal, or at least subnormal.
    const float lowest = args.flush ? -87.3365448f : -104.0f;
    const int64_t grain = ceil_div(kGrain / 4, max(args.dim, 1));
    if (args.inner == 1) {
      const int64_t group = max(1, min(kWidth, kSpace / 8 / max(args.dim, 1)));
      parallel(args.outer, 1, grain, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; row += group)
          (args.dim <= kShort && 2 * (end - row) >= kWidth
               ? softmax_short_rows<T>
               : softmax_rows<T>)(x + row * args.dim,
                                  out + row * args.dim,
                                  min(group, end - row),
                                  args.dim,
                                  lowest,
                                  args.log);
      });
      return;
    }
    if (args.dim * kWidth <= kSpace) {
      const int64_t fit = kSpace / max(args.dim, 1) / kWidth * kWidth;
      const int64_t block = min(kBlock, fit);
      const int64_t blocks = ceil_div(args.inner, block);
      parallel(
          args.outer * blocks,
          1,
          ceil_div(grain, min(block, args.inner)),
          [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
              const int64_t first = i % blocks * block;
              const int64_t place = i / blocks * args.dim * args.inner + first;
              softmax_block(
                  x + place,
                  out + place,
                  args.dim,
                  args.inner,
                  min(block, args.inner - first),
                  lowest,
                  args.log);
            }
          });
      return;
    }
    each_column(
        args.outer,
        args.dim,
        args.inner,
        [&](int64_t outer, int64_t first, auto lanes) {
          const int64_t place = outer * args.dim * args.inner + first;
          softmax_columns(
              x + place,
              out + place,
              args.dim,
              args.inner,
              lowest,
              args.log,
              lanes);
        });
  });
}

void logsumexp(const AlongArgs& args) {
  with_type<float, BFloat16>(args.dtype, [&]<class T>(T*) {
    const T* x = static_cast<const T*>(args.x);
    T* out = static_cast<T*>(args.out);
    if (args.inner == 1) {
      const int64_t grain = ceil_div(kGrain / 4, max(args.dim, 1));
      parallel(args.outer, 1, grain, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row)
          store_one(out + row, log_of_powers(x + row * args.dim, args.dim));
      });
      return;
    }
    each_column(
        args.outer,
        args.dim,
        args.inner,
        [&](int64_t outer, int64_t first, auto lanes) {
          const T* from = x + outer * args.dim * args.inner + first;
          Vec top = splat(-kInfinity);
          for (int64_t i = 0; i < args.dim; ++i)
            top = max_or_nan(load(from + i * args.inner, lanes), top);
          const PowersBelow power_of(top);
          CompensatedSum powers;
          for (int64_t i = 0; i < args.dim; ++i)
            powers.add(power_of(load(from + i * args.inner, lanes), -104.0f));
          const Vec sum = top + log_of(powers.sum(), powers.lost);
          const auto finite = abs(top) < splat(kInfinity);
          store(out + outer * args.inner + first, finite ? sum : top, lanes);
        });
  });
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
