// The functions of one vector that algorithms name.
#pragma once

#include "elementwise.h"
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

} // namespace
} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
