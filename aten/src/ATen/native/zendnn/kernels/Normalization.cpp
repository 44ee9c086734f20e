// Normalisation, softmax and mean: rows are read again from the cache for each
// pass, so that every sum is taken of well-scaled numbers.
#include "normalization.h"

#include "reduction.h"
#include "vec.h"
#include "vecmath.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

// Sums value(i) over [0, size) in groups, whose sums are as precise as they are
// small.
template <class Value>
Vec sum_in_groups(int64_t size, Value value) {
  constexpr int64_t group = 64;
  Vec sum{};
  for (int64_t first = 0; first < size; first += group) {
    const int64_t last = min(first + group, size);
    Vec part{};
    for (int64_t i = first; i < last; ++i)
      part += value(i);
    sum += part;
  }
  return sum;
}

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
    // The sum waits in its own row, or in that of the result.
    T* sums = args.sum_out ? static_cast<T*>(args.sum_out) + first : out;
    each_vector(args.cols, [&](int64_t i, auto lanes) {
      Vec v = load(x + i, lanes);
      if (residual)
        v = v + load(residual + i, lanes);
      store(sums + i, v, lanes);
    });
    x = sums;
  }

  const Vec mean = splat(centred ? mean_of(x, 1, args.cols, 0) : 0);
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
    store(out + i, y, lanes);
  });
}

template <bool centred>
void norm(const NormArgs& args) {
  with_type(args.dtype, [&]<class T>(T*) {
    with_type(args.weight_dtype, [&]<class W>(W*) {
      const int64_t grain = ceil_div(kGrain, max(args.cols, 1));
      parallel(args.rows, 1, grain, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row)
          norm_row<centred, T, W>(args, row);
      });
    });
  });
}

// Numbers that wait on the stack, in the second-level cache.
constexpr int64_t kSpace = 32768;

// Up to kWidth rows, whose sums share one logarithm or division.
template <bool flush, class T>
void softmax_rows(const T* x, T* out, int64_t rows, int64_t size, bool log) {
  const auto power_of = [](Vec d) { return flush ? exp_or_zero(d) : exp(d); };
  // Powers of float32 wait in out; those of bfloat16 would lose digits there.
  constexpr bool in_out = sizeof(T) == sizeof(float);
  float space[in_out ? 1 : kSpace];
  const bool wait = !log && (in_out || rows * size <= kSpace);
  const auto place = [&](int64_t i) {
    if constexpr (in_out)
      return out + i;
    else
      return space + i;
  };
  float tops[kWidth] = {}, sums[kWidth] = {};
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = row * size;
    const Vec top = splat(max_of(size, [&](int64_t i, auto lanes) {
      return load(x + first + i, lanes);
    }));
    tops[row] = top[0];
    sums[row] = sum_of(size, [&](int64_t i, auto lanes) {
      const Vec power = power_of(load(x + first + i, lanes) - top);
      if (wait)
        store(place(first + i), power, lanes);
      return power;
    });
  }
  float ends[kWidth];
  const Vec sum = load(sums);
  store(ends, log ? kernels::ZENDNN_KERNEL_ISA::log(sum) : 1.0f / sum);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = row * size;
    const Vec top = splat(tops[row]), end = splat(ends[row]);
    each_vector(size, [&](int64_t i, auto lanes) {
      const auto power = [&] {
        return wait ? load(place(first + i), lanes)
                    : power_of(load(x + first + i, lanes) - top);
      };
      const Vec y =
          log ? load(x + first + i, lanes) - top - end : power() * end;
      store(out + first + i, y, lanes);
    });
  }
}

// Softmax down up to kBlock neighbouring columns, `stride` from row to row,
// which are read once and written once: long strides miss the caches.
constexpr int64_t kBlock = 64;

template <class T>
void softmax_block(
    const T* x,
    T* out,
    int64_t size,
    int64_t stride,
    int64_t cols,
    bool log) {
  float space[kSpace], top[kBlock], sum[kBlock] = {}, part[kBlock];
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
  // In groups, as the sums of rows are.
  for (int64_t first = 0; first < size; first += kBlock) {
    each([&](int64_t i) { store(part + i, Vec{}); });
    for (int64_t row = first; row < min(first + kBlock, size); ++row)
      each([&](int64_t i) {
        float* place = space + row * width + i;
        const Vec d = load(place) - load(top + i), power = exp(d);
        store(place, log ? d : power);
        store(part + i, load(part + i) + power);
      });
    each([&](int64_t i) { store(sum + i, load(sum + i) + load(part + i)); });
  }
  each([&](int64_t i) {
    const Vec s = load(sum + i);
    store(sum + i, log ? kernels::ZENDNN_KERNEL_ISA::log(s) : 1.0f / s);
  });
  for (int64_t row = 0; row < size; ++row)
    each_vector(cols, [&](int64_t i, auto lanes) {
      const Vec v = load(space + row * width + i), end = load(sum + i);
      store(out + row * stride + i, log ? v - end : v * end, lanes);
    });
}

// The same for one vector of columns of any size.
template <class T, class Lanes>
void softmax_columns(
    const T* x,
    T* out,
    int64_t size,
    int64_t stride,
    bool log,
    Lanes lanes) {
  Vec top = splat(-kInfinity);
  for (int64_t i = 0; i < size; ++i)
    top = max(load(x + i * stride, lanes), top);
  const Vec sum = sum_in_groups(
      size, [&](int64_t i) { return exp(load(x + i * stride, lanes) - top); });
  const Vec base = kernels::ZENDNN_KERNEL_ISA::log(sum), factor = 1.0f / sum;
  for (int64_t i = 0; i < size; ++i) {
    const Vec d = load(x + i * stride, lanes) - top;
    store(out + i * stride, log ? d - base : exp(d) * factor, lanes);
  }
}

template <class T, class Lanes>
void mean_columns(
    const T* x,
    T* out,
    int64_t size,
    int64_t stride,
    Lanes lanes) {
  const Vec sum = sum_in_groups(
      size, [&](int64_t i) { return load(x + i * stride, lanes); });
  store(out, sum / static_cast<float>(size), lanes);
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

} // namespace

void layer_norm(const NormArgs& args) {
  norm<true>(args);
}

void rms_norm(const NormArgs& args) {
  norm<false>(args);
}

void softmax(const SoftmaxArgs& args) {
  with_type(args.dtype, [&]<class T>(T*) {
    const T* x = static_cast<const T*>(args.x);
    T* out = static_cast<T*>(args.out);
    const int64_t grain = ceil_div(kGrain / 4, max(args.dim, 1));
    if (args.inner == 1) {
      const int64_t group = max(1, min(kWidth, kSpace / 8 / max(args.dim, 1)));
      const auto run =
          args.flush ? softmax_rows<true, T> : softmax_rows<false, T>;
      parallel(args.outer, 1, grain, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; row += group)
          run(x + row * args.dim,
              out + row * args.dim,
              min(group, end - row),
              args.dim,
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
              x + place, out + place, args.dim, args.inner, args.log, lanes);
        });
  });
}

void mean(const MeanArgs& args) {
  with_type(args.dtype, [&]<class T>(T*) {
    const T* x = static_cast<const T*>(args.x);
    T* out = static_cast<T*>(args.out);
    if (args.inner == 1) {
      const int64_t grain = ceil_div(kGrain, max(args.dim, 1));
      parallel(args.outer, 1, grain, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const T* from = x + row * args.dim;
          const float sum = sum_of_many(args.dim, [&](int64_t i, auto lanes) {
            return load(from + i, lanes);
          });
          store_one(out + row, sum / static_cast<float>(args.dim));
        }
      });
      return;
    }
    each_column(
        args.outer,
        args.dim,
        args.inner,
        [&](int64_t outer, int64_t first, auto lanes) {
          mean_columns(
              x + outer * args.dim * args.inner + first,
              out + outer * args.inner + first,
              args.dim,
              args.inner,
              lanes);
        });
  });
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
