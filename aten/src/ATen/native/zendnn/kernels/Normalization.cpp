// Normalisation, softmax and mean: rows are read again from the cache for each
// pass, so that every sum is taken of well-scaled numbers.
#include "normalization.h"

#include "vec.h"
#include "vecmath.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

// Elements that are worth a thread.
constexpr int64_t kGrain = 16384;

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

  const Vec mean = splat(
      centred ? sum_of(
                    args.cols,
                    [&](int64_t i, auto lanes) { return load(x + i, lanes); }) /
                    cols
              : 0);
  const float squares = sum_of(args.cols, [&](int64_t i, auto lanes) {
    const Vec d = load(x + i, lanes) - mean;
    return d * d;
  });
  const Vec factor = splat(1 / __builtin_sqrtf(squares / cols + args.eps));
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

template <class T>
void softmax_row(const T* x, T* out, int64_t size, bool log) {
  const Vec top = splat(
      max_of(size, [&](int64_t i, auto lanes) { return load(x + i, lanes); }));
  // Powers of float32 wait in out; those of bfloat16 would lose digits there,
  // and are computed twice.
  constexpr bool wait = sizeof(T) == sizeof(float);
  const float sum = sum_of(size, [&](int64_t i, auto lanes) {
    const Vec power = exp(load(x + i, lanes) - top);
    if (wait && !log)
      store(out + i, power, lanes);
    return power;
  });
  if (log) {
    const Vec base = kernels::ZENDNN_KERNEL_ISA::log(splat(sum));
    each_vector(size, [&](int64_t i, auto lanes) {
      store(out + i, load(x + i, lanes) - top - base, lanes);
    });
    return;
  }
  const Vec factor = splat(1 / sum);
  each_vector(size, [&](int64_t i, auto lanes) {
    const Vec power =
        wait ? load(out + i, lanes) : exp(load(x + i, lanes) - top);
    store(out + i, power * factor, lanes);
  });
}

// The same for one vector of neighbouring columns, `stride` from row to row.
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
    if (args.inner == 1) {
      const int64_t grain = ceil_div(kGrain / 4, max(args.dim, 1));
      parallel(args.outer, 1, grain, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row)
          softmax_row(
              x + row * args.dim, out + row * args.dim, args.dim, args.log);
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
          const float sum = sum_of(args.dim, [&](int64_t i, auto lanes) {
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
