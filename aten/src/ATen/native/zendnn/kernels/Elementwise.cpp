// Elementwise functions of one and of two tensors.
#include "elementwise.h"

#include "strided.h"
#include "vec.h"
#include "vecmath.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

// Calls f with the function of one vector that `algorithm` names, for results
// of type T. In min and max the constant comes first, so that NaN propagates.
template <class T, class F>
void with_function(Eltwise algorithm, float alpha, float beta, F f) {
  const Vec a = splat(alpha), b = splat(beta), zero{};
  switch (algorithm) {
    case Eltwise::none:
      return f([](Vec x) { return x; });
    case Eltwise::relu:
      return f([=](Vec x) { return max(zero, x); });
    case Eltwise::leaky_relu:
      return f([=](Vec x) { return x > zero ? x : x * a; });
    case Eltwise::clip:
      return f([=](Vec x) { return min(b, max(a, x)); });
    case Eltwise::sigmoid:
      return f([](Vec x) { return sigmoid<T>(x); });
    case Eltwise::tanh:
      return f([](Vec x) { return tanh(x); });
    case Eltwise::gelu:
      return f([](Vec x) { return gelu<T>(x); });
    case Eltwise::gelu_tanh:
      return f([](Vec x) { return gelu_tanh<T>(x); });
    case Eltwise::silu:
      return f([](Vec x) { return silu<T>(x); });
    case Eltwise::hardswish:
      return f([=](Vec x) {
        return x * min(splat(6), max(zero, x + 3.0f)) * (1 / 6.0f);
      });
    case Eltwise::hardsigmoid:
      return f([=](Vec x) {
        return min(splat(6), max(zero, x + 3.0f)) * (1 / 6.0f);
      });
    case Eltwise::elu:
      return f([=](Vec x) { return x > zero ? x : a * expm1(x); });
    case Eltwise::mish:
      return f([](Vec x) { return mish(x); });
    case Eltwise::softplus:
      return f([](Vec x) { return softplus(x); });
    case Eltwise::exp:
      return f([](Vec x) { return exp(x); });
    case Eltwise::abs:
      return f([](Vec x) { return abs(x); });
    case Eltwise::sqrt:
      return f([](Vec x) { return sqrt(x); });
    case Eltwise::square:
      return f([](Vec x) { return x * x; });
    case Eltwise::log:
      return f([](Vec x) { return log(x); });
    case Eltwise::affine:
      return f([=](Vec x) { return x * a + b; });
    case Eltwise::round:
      return f([](Vec x) { return round(x); });
    case Eltwise::log2:
      return f([](Vec x) { return log2<T>(x); });
    case Eltwise::sin:
      return f([](Vec x) { return sin(x); });
    case Eltwise::cos:
      return f([](Vec x) { return cos(x); });
    case Eltwise::floor:
      return f([](Vec x) { return floor(x); });
    case Eltwise::ceil:
      return f([](Vec x) { return ceil(x); });
  }
}

template <class T>
void apply(
    Eltwise algorithm,
    float alpha,
    float beta,
    const T* src,
    T* dst,
    int64_t size) {
  with_function<T>(algorithm, alpha, beta, [&](auto function) {
    each_vector(size, [&](int64_t i, auto lanes) {
      store(dst + i, function(load(src + i, lanes)), lanes);
    });
  });
}

template <class F>
void with_function(Binary algorithm, F f) {
  switch (algorithm) {
    case Binary::add:
      return f([](Vec a, Vec b) { return a + b; });
    case Binary::sub:
      return f([](Vec a, Vec b) { return a - b; });
    case Binary::mul:
      return f([](Vec a, Vec b) { return a * b; });
    case Binary::div:
      return f([](Vec a, Vec b) { return a / b; });
    // The instructions return b if either is NaN.
    case Binary::max:
      return f(max_or_nan);
    case Binary::min:
      return f([](Vec a, Vec b) { return a == a ? min(a, b) : a; });
  }
}

template <class T>
struct Operand {
  const T* data;
  int64_t stride;

  // The same elements with a stride of 0 or 1, copied to `space` if needed.
  Operand collected(int64_t first, int64_t count, T* space) const {
    if (stride == 0)
      return *this;
    return {side_by_side(data, stride, first, count, space), 1};
  }
};

template <class T, class Function>
void combine(
    Function function,
    Operand<T> a,
    Operand<T> b,
    T* out,
    int64_t size) {
  if (a.stride == 1 && b.stride == 1) {
    each_vector(size, [&](int64_t i, auto lanes) {
      store(
          out + i,
          function(load(a.data + i, lanes), load(b.data + i, lanes)),
          lanes);
    });
  } else if (a.stride == 1) {
    const Vec same = splat(load_one(b.data));
    each_vector(size, [&](int64_t i, auto lanes) {
      store(out + i, function(load(a.data + i, lanes), same), lanes);
    });
  } else if (b.stride == 1) {
    const Vec same = splat(load_one(a.data));
    each_vector(size, [&](int64_t i, auto lanes) {
      store(out + i, function(same, load(b.data + i, lanes)), lanes);
    });
  } else {
    const Vec same = function(splat(load_one(a.data)), splat(load_one(b.data)));
    each_vector(
        size, [&](int64_t i, auto lanes) { store(out + i, same, lanes); });
  }
}

template <class T, class Function>
void combine_run(
    const BinaryArgs& args,
    Function function,
    Operand<T> a,
    Operand<T> b,
    T* out,
    int64_t out_stride,
    int64_t size) {
  T a_space[kChunk], b_space[kChunk], out_space[kChunk];
  for (int64_t first = 0; first < size; first += kChunk) {
    const int64_t count = min(size - first, kChunk);
    T* to = out_stride == 1 ? out + first : out_space;
    combine(
        function,
        a.collected(first, count, a_space),
        b.collected(first, count, b_space),
        to,
        count);
    if (args.post != Eltwise::none)
      apply(args.post, args.alpha, args.beta, to, to, count);
    if (out_stride != 1)
      for (int64_t i = 0; i < count; ++i)
        out[(first + i) * out_stride] = to[i];
  }
}

} // namespace

void eltwise(const EltwiseArgs& args) {
  with_type(args.dtype, [&]<class T>(T*) {
    parallel(args.size, 64, kGrain, [&](int64_t begin, int64_t end) {
      apply(
          args.algorithm,
          args.alpha,
          args.beta,
          static_cast<const T*>(args.src) + begin,
          static_cast<T*>(args.dst) + begin,
          end - begin);
    });
  });
}

void binary(const BinaryArgs& args) {
  for (int64_t d = 0; d < args.ndim; ++d)
    if (args.sizes[d] == 0)
      return;
  const Loops<3> loops = make_loops<3>(
      args.ndim,
      args.sizes,
      {args.out_strides, args.a_strides, args.b_strides});
  const int last = loops.ndim - 1;
  with_type(args.dtype, [&]<class T>(T*) {
    const T* a = static_cast<const T*>(args.a);
    const T* b = static_cast<const T*>(args.b);
    T* out = static_cast<T*>(args.out);
    with_function(args.algorithm, [&](auto function) {
      parallel(loops.total(), 64, kGrain, [&](int64_t begin, int64_t end) {
        each_run(loops, begin, end, [&](Offsets<3> at, int64_t count) {
          combine_run<T>(
              args,
              function,
              {a + at.at[1], loops.strides[1][last]},
              {b + at.at[2], loops.strides[2][last]},
              out + at.at[0],
              loops.strides[0][last],
              count);
        });
      });
    });
  });
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
