// Comparisons, arithmetic and logic of integers, and running sums.
#include "integers.h"

#include "strided.h"
#include "vec.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

inline int64_t value_of(int64_t x) {
  return x;
}
inline uint8_t value_of(uint8_t x) {
  return x;
}
inline float value_of(float x) {
  return x;
}
inline float value_of(BFloat16 x) {
  return load_one(&x);
}

// The inner strides are constants where that lets the compiler vectorise.
template <class T, class Out, class F>
void combine(
    const T* a,
    int64_t a_stride,
    const T* b,
    int64_t b_stride,
    Out* out,
    int64_t size,
    F f) {
  for (int64_t i = 0; i < size; ++i)
    out[i] = f(value_of(a[i * a_stride]), value_of(b[i * b_stride]));
}

template <class T, class Out, class F>
void each_pair(const PairArgs& args, F f) {
  const Loops<3> loops = make_loops<3>(
      args.ndim,
      args.sizes,
      {args.out_strides, args.a_strides, args.b_strides});
  const int last = loops.ndim - 1;
  const int64_t stride = loops.strides[0][last],
                a_stride = loops.strides[1][last],
                b_stride = loops.strides[2][last];
  parallel(loops.total(), 64, kGrain, [&](int64_t begin, int64_t end) {
    each_run(loops, begin, end, [&](Offsets<3> at, int64_t size) {
      Out* out = static_cast<Out*>(args.out) + at.at[0];
      const T* a = static_cast<const T*>(args.a) + at.at[1];
      const T* b = static_cast<const T*>(args.b) + at.at[2];
      if (stride != 1)
        for (int64_t i = 0; i < size; ++i)
          out[i * stride] =
              f(value_of(a[i * a_stride]), value_of(b[i * b_stride]));
      else if (a_stride == 1 && b_stride == 1)
        combine(a, 1, b, 1, out, size, f);
      else if (a_stride == 1 && b_stride == 0)
        combine(a, 1, b, 0, out, size, f);
      else if (a_stride == 0 && b_stride == 1)
        combine(a, 0, b, 1, out, size, f);
      else
        combine(a, a_stride, b, b_stride, out, size, f);
    });
  });
}

template <class T>
void compare(const PairArgs& args) {
  const auto each = [&](auto f) { each_pair<T, uint8_t>(args, f); };
  switch (args.algorithm) {
    case Pair::eq:
      return each([](auto x, auto y) { return x == y; });
    case Pair::ne:
      return each([](auto x, auto y) { return x != y; });
    case Pair::lt:
      return each([](auto x, auto y) { return x < y; });
    case Pair::le:
      return each([](auto x, auto y) { return x <= y; });
    case Pair::gt:
      return each([](auto x, auto y) { return x > y; });
    default:
      return each([](auto x, auto y) { return x >= y; });
  }
}

template <class T>
void compute(const PairArgs& args) {
  const auto each = [&](auto f) { each_pair<T, T>(args, f); };
  switch (args.algorithm) {
    case Pair::bit_and:
      return each([](T x, T y) { return static_cast<T>(x & y); });
    case Pair::bit_or:
      return each([](T x, T y) { return static_cast<T>(x | y); });
    case Pair::bit_xor:
      return each([](T x, T y) { return static_cast<T>(x ^ y); });
    case Pair::add:
      return each([](uint64_t x, uint64_t y) { return static_cast<T>(x + y); });
    case Pair::sub:
      return each([](uint64_t x, uint64_t y) { return static_cast<T>(x - y); });
    default:
      return each([](uint64_t x, uint64_t y) { return static_cast<T>(x * y); });
  }
}

template <class T, class Sum, class Out>
void add_up(const CumsumArgs& args) {
  const T* x = static_cast<const T*>(args.x);
  Out* out = static_cast<Out*>(args.out);
  const int64_t inner = args.inner, grain = kGrain / args.dim + 1;
  parallel(args.outer * inner, 1, grain, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      int64_t at = line / inner * args.dim * inner + line % inner;
      Sum sum = 0;
      for (int64_t j = 0; j < args.dim; ++j, at += inner) {
        sum += static_cast<Sum>(x[at]);
        out[at] = static_cast<Out>(sum);
      }
    }
  });
}

} // namespace

void pair(const PairArgs& args) {
  for (int64_t d = 0; d < args.ndim; ++d)
    if (args.sizes[d] == 0)
      return;
  const bool compares = args.algorithm <= Pair::ge;
  switch (args.dtype) {
    case PairType::int64:
      return compares ? compare<int64_t>(args) : compute<int64_t>(args);
    case PairType::boolean:
      return compares ? compare<uint8_t>(args) : compute<uint8_t>(args);
    case PairType::float32:
      return compare<float>(args);
    case PairType::bfloat16:
      return compare<BFloat16>(args);
  }
}

void cumsum(const CumsumArgs& args) {
  if (args.dim == 0)
    return;
  switch (args.dtype) {
    case PairType::boolean:
      return add_up<uint8_t, uint64_t, int64_t>(args);
    case PairType::float32:
      return add_up<float, double, float>(args);
    default:
      return add_up<int64_t, uint64_t, int64_t>(args);
  }
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
