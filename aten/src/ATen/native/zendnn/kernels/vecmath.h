// Elementary functions of vectors. The polynomials are those of S. Moshier's
// Cephes library, single precision (netlib.org/cephes), unless said otherwise.
#pragma once

#include "gelu_table.h"
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

// x + rest = n log 2 + r with an integral n, and eʳ - 1.
struct ExpParts {
  Vec n, r_minus_1;
};
inline ExpParts exp_parts(Vec x, Vec rest = Vec{}) {
  const Vec n = round(x * kLog2e);
  const Vec r = (x - n * 0.693359375f) - (n * -2.12194440e-4f - rest);
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

// The same, or 0 where that is less than a normal number.
inline Vec exp_or_zero(Vec x) {
  const Vec lowest = splat(-87.3365448f);
  return x < lowest ? Vec{} : exp(max(lowest, x));
}

// 2ˣ for x ≤ 127, or 0 where that is less than a normal number: products with
// denormal ones take sixty times as long.
inline Vec exp2(Vec x) {
  const Vec lowest = splat(-126.0f);
  const Vec within = max(lowest, x); // NaN stays
  const Vec n = round(within), r = within - n;
  const Vec p = polynomial(
      r,
      1.535336188319500e-4f,
      1.339887440266574e-3f,
      9.618437357674640e-3f,
      5.550332471162809e-2f,
      2.402264791363012e-1f,
      6.931472028550421e-1f);
  const Vec y = scale_by_power(p * r + 1.0f, n);
  return x < lowest ? Vec{} : y;
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
  const Vec large = 1.0f - 2.0f / (exp(a + a) + 1.0f);
  return copy_sign(a < splat(0.625f) ? p * square * a + a : large, x);
}

inline Vec sigmoid(Vec x) {
  return 1.0f / (exp(-x) + 1.0f);
}

// max(x, 0) - a Φ(-a) with a = |x|: every digit of Φ in the tail counts. Φ(-a)
// exp(a² / 2) is the quotient of two polynomials that cancel nothing, fitted to
// a relative error of 2⁻²⁷.
inline Vec gelu_anywhere(Vec x) {
  const Vec a = min(splat(14.5f), abs(x)); // there the tail has come to 0
  // a² = square + rest exactly, and both are parts of the power.
  const Vec square = a * a, rest = rounded_off(a, a, square);
  const ExpParts parts = exp_parts(square * -0.5f, rest * -0.5f);
  const Vec p = polynomial(
      a,
      0.004116307273437617f,
      0.040633217903085266f,
      0.18323511757909267f,
      0.43829493056327806f,
      0.5f);
  const Vec q = polynomial(
      a,
      0.01031793245483038f,
      0.10185881994962995f,
      0.4694705748697686f,
      1.20250306929644f,
      1.6744748423651872f,
      1.0f);
  const Vec power = scale_by_power(parts.r_minus_1 + 1.0f, parts.n);
  const Vec y = max(Vec{}, x) - quotient(a * p, q) * power;
  // torch has -∞ · 0 there, as the other functions of this kind have.
  return x == splat(-kInfinity) ? splat(__builtin_nanf("")) : y;
}

#ifdef __AVX512F__
// The terms of the table's polynomials that a result of type T is worth:
// look-ups take the most time. With five, bfloat16 is off by 5e-4 of the tail
// at most.
template <class T>
constexpr int kTailTerms = 7;
template <>
constexpr int kTailTerms<BFloat16> = 5;

// The same from a table, at half the price, unless x is far out.
template <class T>
Vec gelu(Vec x) {
  constexpr float kEnd = 31.4f * 3 / 16; // nearest to the last centre
  if (__builtin_expect(any_below(x, splat(-kEnd)), 0))
    return gelu_anywhere(x);
  const Vec a = min(splat(kEnd), abs(x));
  // Adding 1.5 · 2²³ rounds to the integer that the low bits then hold.
  constexpr float kMagic = 12582912.0f;
  const Vec shifted = a * (16.0f / 3) + kMagic;
  const Vec d = a - (shifted - kMagic) * (3.0f / 16);
  const VecI centre = as_int(shifted);
  Vec tail = look_up(kNormalTail[kTailTerms<T> - 1], centre);
#pragma GCC unroll 6
  for (int i = kTailTerms<T> - 2; i >= 0; --i)
    tail = tail * d + look_up(kNormalTail[i], centre);
  return max(Vec{}, x) - a * tail;
}
#else
template <class T>
Vec gelu(Vec x) {
  return gelu_anywhere(x);
}
#endif

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
