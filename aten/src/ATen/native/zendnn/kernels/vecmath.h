// Elementary functions of vectors. The polynomials are those of S. Moshier's
// Cephes library, single precision (netlib.org/cephes), unless said otherwise.
#pragma once

#include "vec.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

constexpr float kInfinity = __builtin_inff();
constexpr float kLog2e = 1.44269504088896341f;

// The coefficient of the highest power first.
inline Vec polynomial(Vec, Vec sum) {
  return sum;
}
template <class... Rest>
inline Vec polynomial(Vec x, Vec sum, float next, Rest... rest) {
  return polynomial(x, sum * x + splat(next), rest...);
}
template <class... Rest>
inline Vec polynomial(Vec x, float first, Rest... rest) {
  return polynomial(x, splat(first), rest...);
}

// x = n log 2 + r with an integral n, and eʳ - 1.
struct ExpParts {
  Vec n, r_minus_1;
};
inline ExpParts exp_parts(Vec x) {
  const Vec n = round(x * kLog2e);
  const Vec r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  const Vec p = polynomial(
      r,
      1.9875691500e-4f,
      1.3981999507e-3f,
      8.3334519073e-3f,
      4.1665795894e-2f,
      1.6666665459e-1f,
      5.0000001201e-1f);
  return {n, p * (r * r) + r};
}

inline Vec exp(Vec x) {
  // As arguments of min and max go, NaN stays.
  x = min(splat(89.0f), max(splat(-104.0f), x));
  const ExpParts parts = exp_parts(x);
  return scale_by_power(parts.r_minus_1 + 1.0f, parts.n);
}

// 2ˣ for x ≤ 127.
inline Vec exp2(Vec x) {
  x = max(splat(-151.0f), x);
  const Vec n = round(x), r = x - n;
  const Vec p = polynomial(
      r,
      1.535336188319500e-4f,
      1.339887440266574e-3f,
      9.618437357674640e-3f,
      5.550332471162809e-2f,
      2.402264791363012e-1f,
      6.931472028550421e-1f);
  return scale_by_power(p * r + 1.0f, n);
}

// eˣ - 1, precise near 0.
inline Vec expm1(Vec x) {
  x = min(splat(89.0f), max(splat(-104.0f), x));
  const ExpParts parts = exp_parts(x);
  const Vec power = scale_by_power(splat(1.0f), parts.n);
  return parts.r_minus_1 * power + (power - 1.0f);
}

inline Vec log(Vec x) {
  // Subnormal numbers are scaled to normal ones.
  const auto small = x < splat(1.17549435e-38f);
  const Vec normal = small ? x * 8388608.0f : x;
  // normal = m · 2ᵉ with m in [√½, √2)
  const VecI bits = as_int(normal);
  Vec e = to_float((bits >> 23) - (small ? splat_int(149) : splat_int(126)));
  Vec m = as_float((bits & 0x7fffff) | 0x3f000000);
  const auto low = m < splat(0.707106781186547524f);
  e = low ? e - 1.0f : e;
  m = (low ? m + m : m) - 1.0f;
  const Vec square = m * m;
  const Vec p = polynomial(
      m,
      7.0376836292e-2f,
      -1.1514610310e-1f,
      1.1676998740e-1f,
      -1.2420140846e-1f,
      1.4249322787e-1f,
      -1.6668057665e-1f,
      2.0000714765e-1f,
      -2.4999993993e-1f,
      3.3333331174e-1f);
  const Vec y = p * m * square + e * -2.12194440e-4f - square * 0.5f;
  const Vec result = (m + y) + e * 0.693359375f;
  const Vec special =
      x == Vec{} ? splat(-kInfinity)
                 : (x == splat(kInfinity) ? x : splat(__builtin_nanf("")));
  return (x > Vec{}) & (x < splat(kInfinity)) ? result : special;
}

inline Vec tanh(Vec x) {
  const Vec a = abs(x), square = x * x;
  const Vec p = polynomial(
      square,
      -5.70498872745e-3f,
      2.06390887954e-2f,
      -5.37397155531e-2f,
      1.33314422036e-1f,
      -3.33332819422e-1f);
  const Vec large = copy_sign(1.0f - 2.0f / (exp(a + a) + 1.0f), x);
  return a < splat(0.625f) ? p * square * x + x : large;
}

inline Vec sigmoid(Vec x) {
  return 1.0f / (exp(-x) + 1.0f);
}

// x Φ(x), where Φ(-a) = ½ exp(-a² / 2) t p(t) with t = 1 / (1 + 0.3 a / √2) for
// a ≥ 0: the form of Abramowitz and Stegun 7.1.26, with a minimax polynomial of
// degree 8 fitted to a relative error of 2e-8.
inline Vec gelu(Vec x) {
  const Vec t = 1.0f / (abs(x) * (0.3f * 0.707106781186547524f) + 1.0f);
  const Vec p = polynomial(
      t,
      -0.12952332198619843f,
      0.4855653941631317f,
      -0.5122829079627991f,
      0.5477259159088135f,
      -0.09465507417917252f,
      0.2149280458688736f,
      0.14833863079547882f,
      0.1707153171300888f,
      0.169187992811203f);
  const Vec tail = exp2(x * x * (-0.5f * kLog2e)) * t * p;
  return x * 0.5f * (x < Vec{} ? tail : 2.0f - tail);
}

inline Vec gelu_tanh(Vec x) {
  // ½ (1 + tanh u) is sigmoid(2 u).
  const Vec u = x * (x * x * 0.044715f + 1.0f);
  return x / (exp(u * -1.5957691216057308f) + 1.0f);
}

inline Vec silu(Vec x) {
  return x / (exp(-x) + 1.0f);
}

inline Vec mish(Vec x) {
  // tanh(log(1 + e)) = (e² + 2 e) / (e² + 2 e + 2)
  const Vec e = exp(min(splat(20.0f), x)), n = e * (e + 2.0f);
  return x * (n / (n + 2.0f));
}

} // namespace
} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
