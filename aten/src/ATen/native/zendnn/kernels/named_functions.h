// The functions of one vector that algorithms name. Those of more than a line
// are in vecmath.h. NaN propagates: in min and max, a constant comes first.
#pragma once

#include "elementwise.h"
#include "vec.h"
#include "vecmath.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

inline Vec none(Vec x) {
  return x;
}

inline Vec relu(Vec x) {
  return max(Vec{}, x);
}

inline Vec leaky_relu(Vec x, Vec slope, Vec /*unused*/) {
  return x > Vec{} ? x : x * slope;
}

inline Vec clip(Vec x, Vec low, Vec high) {
  return min(high, max(low, x));
}

inline Vec shifted_relu6(Vec x) {
  return clip(x + 3.0f, Vec{}, splat(6));
}

inline Vec hardswish(Vec x) {
  return x * shifted_relu6(x) * (1 / 6.0f);
}

inline Vec hardsigmoid(Vec x) {
  return shifted_relu6(x) * (1 / 6.0f);
}

inline Vec elu(Vec x, Vec alpha, Vec /*unused*/) {
  return x > Vec{} ? x : alpha * expm1(x);
}

inline Vec square(Vec x) {
  return x * x;
}

inline Vec affine(Vec x, Vec factor, Vec added) {
  return x * factor + added;
}

// Calls f with the function of one vector that `algorithm` names, for results
// of type T.
template <class T, class F>
void with_function(Eltwise algorithm, float alpha, float beta, F f) {
  const Vec a = splat(alpha), b = splat(beta);
  switch (algorithm) {
#include <ATen/native/zendnn/kernels/function_cases.inc>
  }
}

} // namespace
} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
