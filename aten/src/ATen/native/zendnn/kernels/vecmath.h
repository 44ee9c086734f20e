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

// 2^(j / 16) as a float, and what that lacks.
// clang-format off
constexpr float kPowers[16] = {
    1.0f, 1.04427373f, 1.09050775f, 1.13878858f,
    1.18920708f, 1.24185777f, 1.29683959f, 1.35425556f,
    1.41421354f, 1.47682619f, 1.54221082f, 1.61049032f,
    1.68179286f, 1.75625217f, 1.8340081f, 1.91520655f};
constexpr float kPowerRests[16] = {
    0.0f, 4.83347016e-8f, -1.30775399e-8f, 5.38622231e-8f,
    3.79763527e-8f, 4.4968381e-8f, -4.01899953e-8f, -1.01233493e-8f,
    2.4203235e-8f, -4.50089885e-8f, 8.07090483e-9f, 9.83621717e-9f,
    -2.47553267e-8f, -9.23577037e-9f, -1.1239278e-8f, 9.84532811e-9f};
// clang-format on

// log 2 / 16 as a float, and what that lacks.
constexpr float kStep = 0.693147182f / 16;
constexpr float kStepRest = -1.90465421e-9f / 16;
constexpr float kSteps = kLog2e * 16; // that make 1
// Adding 1.5 · 2²³ rounds to the integer that the low bits then hold.
constexpr float kMagic = 12582912.0f;

// A power of e, 2^⌊n⌋ (power + rest), with a power of the table's and a rest of
// at most 1/16 of it (P. T. P. Tang, Table-driven implementation of the
// exponential function in IEEE floating-point arithmetic, 1989).
struct ExpParts {
  Vec n, power, rest;

  Vec value() const {
    return scale_by_power(power + rest, n);
  }
};
// exp(k log 2 / 16 + r) for |r| ≤ 1/23 and an integer k, given as magic + k.
inline ExpParts exp_parts_of(Vec shifted, Vec r) {
  const Vec power = look_up(kPowers, as_int(shifted));
  const Vec lacking = look_up(kPowerRests, as_int(shifted));
  const Vec p = polynomial(r, 4.16666679e-2f, 1.66666672e-1f, 0.5f);
  const Vec rest = power * r + (p * (power * (r * r)) + lacking);
  return {(shifted - kMagic) * (1.0f / 16), power, rest};
}
// exp(x + more), where both together are exact.
inline ExpParts exp_parts(Vec x, Vec more = Vec{}) {
  const Vec shifted = x * kSteps + kMagic, k = shifted - kMagic;
  const Vec r = (x - k * kStep) - (k * kStepRest - more);
  return exp_parts_of(shifted, r);
}

inline Vec exp(Vec x) {
  // As arguments of min and max go, NaN stays.
  x = min(splat(89.0f), max(splat(-104.0f), x));
  return exp_parts(x).value();
}

// exp(x - top) for x ≤ top. What such a difference is rounded by would come to
// many last digits of a small power, so both numbers are reduced before they
// are subtracted. From a top beyond ±208 nothing is lost: whatever is near
// enough for a power that is not 0 lies within a factor of two (Sterbenz,
// 1974).
class PowersBelow {
 public:
  explicit PowersBelow(Vec top) {
    const auto near = abs(top) < splat(208.0f);
    base_ = near ? Vec{} : top;
    const Vec reduced = near ? top : Vec{};
    k_ = reduced * kSteps + kMagic - kMagic;
    r_ = (reduced - k_ * kStep) - k_ * kStepRest;
  }

  // Of differences below `lowest`, the powers are 0.
  Vec operator()(Vec x, float lowest) const {
    x = x - base_;
    const Vec shifted = x * kSteps + (kMagic - k_), k = shifted - kMagic;
    const Vec steps = k + k_;
    const Vec r = (x - steps * kStep) - (steps * kStepRest + r_);
    const Vec power = exp_parts_of(shifted, r).value();
    return k < splat(lowest * kSteps) ? Vec{} : power;
  }

  // As if every lane of top was that one.
  PowersBelow of_lane(int64_t i) const {
    return PowersBelow(splat(base_[i]), splat(k_[i]), splat(r_[i]));
  }

 private:
  PowersBelow(Vec base, Vec k, Vec r) : base_(base), k_(k), r_(r) {}

  Vec base_, k_, r_; // top = base + k log 2 / 16 + r
};

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
  return scale_by_power(parts.rest, parts.n) +
         (scale_by_power(parts.power, parts.n) - 1.0f);
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

// Near 0 a polynomial, fitted to a relative error of 2⁻²⁹; else 1 - q with q =
// 2 / (exp(2 |x|) + 1), and with what rounding takes from the sum, from q and
// from the difference.
inline Vec tanh(Vec x) {
  const Vec a = min(splat(16.0f), abs(x)), square = a * a;
  const Vec p = polynomial(
      square, 2.00338334e-2f, -5.38320458e-2f, 1.3332931e-1f, -3.33333296e-1f);
  const ExpParts parts = exp_parts(a + a);
  const Vec power = parts.power + parts.rest;
  const Vec missing = parts.power - power + parts.rest;
  const Vec e = scale_by_power(power, parts.n);
  const Vec sum = e + 1.0f;
  const Vec lost = (e - sum + 1.0f) + scale_by_power(missing, parts.n);
  const Vec q = quotient(splat(2.0f), sum);
  // q is too large by that, times q / 2.
  const Vec excess = (q * sum - 2.0f) + q * lost;
  const Vec high = 1.0f - q, low = 1.0f - high - q;
  const Vec large = high + (excess * (q * 0.5f) + low);
  return copy_sign(a < splat(0.3f) ? p * square * a + a : large, x);
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
  const Vec y = max(Vec{}, x) - quotient(a * p, q) * parts.value();
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
  // ½ (1 + tanh u) is sigmoid(2 u), which is 0 or 1 beyond these.
  const Vec a = min(splat(10.6f), max(splat(-10.6f), x)); // NaN stays
  const Vec factor = a * a * -0.0713548163f - 1.59576912f;
  const Vec u = a * factor;
  const ExpParts parts = exp_parts(u, rounded_off(a, factor, u));
  return x / (parts.value() + 1.0f);
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
