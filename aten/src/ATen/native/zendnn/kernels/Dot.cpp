// Linear layers of few outputs: as many rows as a vector has lanes are
// multiplied together, so that one vector holds their results.
#include "dot.h"

#include "named_functions.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

// Lane i is row i's product, of up to kWidth rows.
template <class T>
Vec multiply(
    const T* x,
    int64_t step,
    int64_t rows,
    const T* weight,
    int64_t depth) {
  Vec sums[kWidth] = {};
  if (rows == kWidth) {
    each_vector(depth, [&](int64_t k, auto lanes) {
      const Vec w = load(weight + k, lanes);
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i)
        sums[i] += load(x + i * step + k, lanes) * w;
    });
  } else {
    for (int64_t i = 0; i < rows; ++i)
      sums[i] = reduce(
          depth,
          Vec{},
          [&](int64_t k, auto lanes) {
            return load(x + i * step + k, lanes) * load(weight + k, lanes);
          },
          [](Vec a, Vec b) { return a + b; });
  }
  return sum_each(sums);
}

#ifdef __AVX512BF16__
// Pairs of products are added in one instruction.
inline Vec multiply(
    const BFloat16* x,
    int64_t step,
    int64_t rows,
    const BFloat16* weight,
    int64_t depth) {
  Vec sums[kWidth] = {};
  const auto add = [&](Vec& sum, int64_t row, int64_t k) {
    sum = _mm512_dpbf16_ps(
        sum,
        reinterpret_cast<__m512bh>(load_pairs(x + row * step + k, depth - k)),
        reinterpret_cast<__m512bh>(load_pairs(weight + k, depth - k)));
  };
  if (rows == kWidth) {
    for (int64_t k = 0; k < depth; k += 32)
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i)
        add(sums[i], i, k);
    return sum_each(sums);
  }
  for (int64_t i = 0; i < rows; ++i) {
    Vec parts[4] = {};
    for (int64_t k = 0; k < depth; k += 4 * 32)
#pragma GCC unroll 4
      for (int part = 0; part < 4; ++part)
        add(parts[part], i, min(k + part * 32, depth));
    sums[i] = (parts[0] + parts[1]) + (parts[2] + parts[3]);
  }
  return sum_each(sums);
}
#endif

template <class T, class Out>
void multiply_all(const DotArgs& args) {
  const T* x = static_cast<const T*>(args.x);
  const T* weight = static_cast<const T*>(args.weight);
  Out* out = static_cast<Out*>(args.out);
  const auto bias = [&](int64_t j) {
    return args.bias == nullptr
               ? 0
               : with_type<float, BFloat16>(args.bias_dtype, [&]<class B>(B*) {
                   return load_one(static_cast<const B*>(args.bias) + j);
                 });
  };
  const int64_t work = max(args.depth * args.outputs, 1);
  const int64_t grain = ceil_div(kGrain, work);
  parallel(args.rows, kWidth, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row += kWidth) {
      const int64_t rows = min(end - row, kWidth);
      for (int64_t j = 0; j < args.outputs; ++j) {
        Vec result = bias(j) + multiply(
                                   x + row * args.x_step,
                                   args.x_step,
                                   rows,
                                   weight + j * args.depth,
                                   args.depth);
        for (int64_t f = 0; f < args.function_count; ++f) {
          const auto& [algorithm, alpha, beta] = args.functions[f];
          with_function<float>(algorithm, alpha, beta, [&](auto function) {
            result = function(result);
          });
        }
        Out* to = out + row * args.out_step + j;
        if (args.out_step == 1)
          each_vector(
              rows, [&](int64_t, auto lanes) { store(to, result, lanes); });
        else
          for (int64_t i = 0; i < rows; ++i)
            store_one(to + i * args.out_step, result[i]);
      }
    }
  });
}

} // namespace

void dot(const DotArgs& args) {
  with_type<float, BFloat16>(args.dtype, [&]<class T>(T*) {
    with_type<float, BFloat16>(
        args.out_dtype, [&]<class Out>(Out*) { multiply_all<T, Out>(args); });
  });
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
