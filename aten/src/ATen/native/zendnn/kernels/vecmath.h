// Elementary functions of vectors. Unless noted, the polynomials are those of
// S. Moshier's Cephes library, single precision (netlib.org/cephes).
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

// 2^(j / 16) as a float, and its rounding error.
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

// log 2 as a float, and its rounding error.
constexpr float kLog2 = 0.693147182f, kLog2Rest = -1.90465421e-9f;
constexpr float kStep = kLog2 / 16, kStepRest = kLog2Rest / 16;
constexpr float kSteps = kLog2e * 16; // per 1
// Adding 1.5 · 2²³ rounds to an integer, which is in the low bits.
constexpr float kMagic = 12582912.0f;

// A power of e, 2^⌊n⌋ (power + rest), with a power from the table and a rest of
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
// exp(x + more), where x + more is the exact argument.
inline ExpParts exp_parts(Vec x, Vec more = Vec{}) {
  const Vec shifted = x * kSteps + kMagic, k = shifted - kMagic;
  const Vec r = (x - k * kStep) - (k * kStepRest - more);
  return exp_parts_of(shifted, r);
}

inline Vec exp(Vec x) {
  // This order of arguments of min and max keeps NaN.
  x = min(splat(89.0f), max(splat(-104.0f), x));
  return exp_parts(x).value();
}

// exp(x - top) for x ≤ top. The rounding error of such a difference would be
// many last digits of a small power, so both numbers are reduced before they
// are subtracted. For a top beyond ±208 the difference is exact: every x with a
// non-zero power is within a factor of two of it (Sterbenz, 1974).
class PowersBelow {
 public:
  explicit PowersBelow(Vec top) {
    const auto near = abs(top) < splat(208.0f);
    base_ = near ? Vec{} : top;
    const Vec reduced = near ? top : Vec{};
    k_ = reduced * kSteps + kMagic - kMagic;
    r_ = (reduced - k_ * kStep) - k_ * kStepRest;
  }

  // For differences below `lowest`, the power is 0.
  Vec operator()(Vec x, float lowest) const {
    x = x - base_;
    const Vec shifted = x * kSteps + (kMagic - k_), k = shifted - kMagic;
    const Vec steps = k + k_;
    const Vec r = (x - steps * kStep) - (steps * kStepRest + r_);
    const Vec power = exp_parts_of(shifted, r).value();
    return k < splat(lowest * kSteps) ? Vec{} : power;
  }

  // The same with lane i of top in every lane.
  PowersBelow of_lane(int64_t i) const {
    return PowersBelow(splat(base_[i]), splat(k_[i]), splat(r_[i]));
  }

 private:
  PowersBelow(Vec base, Vec k, Vec r) : base_(base), k_(k), r_(r) {}

  Vec base_, k_, r_; // top = base + k log 2 / 16 + r
};

// 2ˣ for x ≤ 127, with subnormals flushed to 0: products with subnormals take
// sixty times as long.
inline Vec exp2(Vec x) {
  const Vec lowest = splat(-126.0f);
  const Vec within = max(lowest, x); // keeps NaN
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

// x = (1 + m) 2ᵉ with 1 + m in [√½, √2), and log(1 + m) = m - m² / 2 + cubic.
struct LogParts {
  Vec e, m, square, cubic;
};
inline LogParts log_parts(Vec x) {
  // Subnormals are scaled to normal numbers.
  const auto small = x < splat(1.17549435e-38f);
  const Vec normal = small ? x * 8388608.0f : x;
  // From √½ on, the addition carries into the exponent.
  constexpr uint32_t root = 0x3f3504f3, one = 0x3f800000;
  const VecU carried = as_unsigned(normal) + (one - root);
  const Vec e = to_float(
      reinterpret_cast<VecI>(carried >> 23) -
      (small ? splat_int(150) : splat_int(127)));
  const Vec m = reinterpret_cast<Vec>((carried & 0x7fffff) + root) - 1.0f;
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
  return {e, m, square, p * m * square};
}
// The logarithm of any x, given `result` for finite positive ones.
inline Vec log_or_special(Vec x, Vec result) {
  const Vec special =
      x == Vec{} ? splat(-kInfinity)
                 : (x == splat(kInfinity) ? x : splat(__builtin_nanf("")));
  return (x > Vec{}) & (x < splat(kInfinity)) ? result : special;
}

// log(1 + x) for 0 ≤ x ≤ 1, or NaN. What the sum rounds off is added, relative
// to the sum.
inline Vec log1p_of_part(Vec x) {
  const Vec sum = x + 1.0f, lost = x - (sum - 1.0f);
  const auto [e, m, square, cubic] = log_parts(sum);
  const Vec y = cubic + e * -2.12194440e-4f - square * 0.5f + lost / sum;
  return (m + y) + e * 0.693359375f;
}

// log(1 + eˣ) = max(x, 0) + log(1 + exp(-|x|)).
inline Vec softplus(Vec x) {
  return max(Vec{}, x) + log1p_of_part(exp(-abs(x)));
}

inline Vec log(Vec x) {
  const auto [e, m, square, cubic] = log_parts(x);
  const Vec y = cubic + e * -2.12194440e-4f - square * 0.5f;
  return log_or_special(x, (m + y) + e * 0.693359375f);
}

// The largest argument of sin and cos that is reduced in vectors.
constexpr float kFarArgument = 131072.0f;

// The function of a float at each lane.
template <class Function>
inline Vec of_lanes(Vec x, Function function) {
  for (int i = 0; i < kWidth; ++i)
    x[i] = function(x[i]);
  return x;
}

template <class Function>
[[gnu::noinline]] Vec at_far_lanes(Vec x, Vec y, Function function) {
  for (int i = 0; i < kWidth; ++i)
    if (!(abs(x)[i] <= kFarArgument))
      y[i] = function(x[i]);
  return y;
}

// sin(x + quadrant · π/2) for x ≥ 0: x = k π/2 + r with |r| ≤ π/4. π/2 is
// subtracted in three parts (W. J. Cody and W. Waite, Software Manual for the
// Elementary Functions, 1980), of which the first difference is exact.
inline Vec wave(Vec x, int quadrant) {
  constexpr float kQuarter = 1.57079637f, kRest = -4.37113883e-8f,
                  kLast = -1.71512451e-15f;
  const Vec shifted = x * 0.636619772f + kMagic, k = shifted - kMagic;
  const Vec near = x - k * kQuarter, r = near - k * kRest - k * kLast;
  const Vec square = r * r;
  // The rounding error of r. Near 0 the first difference would be rounded, too.
  const Vec rest = near - r - k * kRest - k * kLast;
  const Vec lost = square > splat(0x1p-16f) ? rest : Vec{};
  const Vec s = polynomial(
      square, -1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f);
  const Vec c = polynomial(
      square,
      2.443315711809948e-5f,
      -1.388731625493765e-3f,
      4.166664568298827e-2f);
  const VecI q = as_int(shifted) + quadrant;
  const Vec sine = (s * (square * r) + lost) + r;
  const Vec cosine = (c * square * square - square * 0.5f) + 1.0f;
  const Vec y = (q & 1) == 0 ? sine : cosine;
  return as_float(as_int(y) ^ ((q & 2) << 30));
}

inline Vec sin(Vec x) {
  const Vec a = abs(x);
  const VecI sign = as_int(x) ^ as_int(a);
  const Vec y = as_float(as_int(wave(a, 0)) ^ sign);
  if (__builtin_expect(any_below(splat(kFarArgument), a), 0))
    return at_far_lanes(x, y, [](float v) { return __builtin_sinf(v); });
  return y;
}

inline Vec cos(Vec x) {
  const Vec a = abs(x), y = wave(a, 1);
  if (__builtin_expect(any_below(splat(kFarArgument), a), 0))
    return at_far_lanes(x, y, [](float v) { return __builtin_cosf(v); });
  return y;
}

// atan(a) = offset + atan(n / d), whose argument is at most tan(π/8). The
// rounding errors of the offset, of n, of d and of the quotient are added.
inline Vec atan(Vec x) {
  const Vec a = min(splat(0x1p60f), abs(x)), one = splat(1.0f), zero{};
  const VecI far = a > splat(2.41421366f),
             middle = (a > splat(0.414213568f)) & ~far;
  const Vec n = far ? -one : middle ? a - one : a;
  const Vec d = far ? a : middle ? a + one : one;
  const Vec offset = far      ? splat(1.57079637f)
                     : middle ? splat(0.785398185f)
                              : zero;
  const Vec rest = far      ? splat(-4.37113883e-8f)
                   : middle ? splat(-2.18556941e-8f)
                            : zero;
  const Vec of_n = middle ? a - (n + one) : zero;
  const Vec of_d = middle ? a - (d - one) : zero;
  const Vec t = quotient(n, d), square = t * t;
  const Vec lacking = ((n - t * d) + (of_n - of_d * t)) * reciprocal(d) + rest;
  const Vec p = polynomial(
      square,
      8.05374449538e-2f,
      -1.38776856032e-1f,
      1.99777106478e-1f,
      -3.33329491539e-1f);
  return copy_sign(offset + (p * square * t + lacking + t), x);
}

// Near 0 a polynomial, fitted to a relative error of 2⁻²⁹; otherwise 1 - q with
// q = 2 / (exp(2 |x|) + 1), corrected by the rounding errors of the sum, of q
// and of the difference.
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
  // q is too large by excess · q / 2.
  const Vec excess = (q * sum - 2.0f) + q * lost;
  const Vec high = 1.0f - q, low = 1.0f - high - q;
  const Vec large = high + (excess * (q * 0.5f) + low);
  return copy_sign(a < splat(0.3f) ? p * square * a + a : large, x);
}

// ratio ≈ n / q times a power of e, with little more than one rounding: the
// ratio's error and the power's rest are added last.
inline Vec times_power(Vec ratio, Vec lacking, ExpParts power) {
  const Vec rest = ratio * power.rest + lacking * (power.power + power.rest);
  return scale_by_power(ratio * power.power + rest, power.n);
}
// n / (1 + eᵗ) times eᵗ.
inline Vec times_logistic(Vec n, ExpParts power) {
  const Vec q = power.value() + 1.0f, r = reciprocal(q), ratio = n * r;
  return times_power(ratio, (n - ratio * q) * r, power);
}

// x Φ(x) = max(x, 0) - |x| Φ(-|x|), given the tail |x| Φ(-|x|), whose digits
// all matter. A tail of 0 gives -0 for negative x. For -∞, torch computes -∞ ·
// 0.
inline Vec less_tail(Vec x, Vec tail) {
  return x == splat(-kInfinity) ? splat(__builtin_nanf(""))
                                : copy_sign(max(Vec{}, x) - tail, x);
}

// Whether results of type T need every digit of a float.
template <class T>
constexpr bool kPrecise = sizeof(T) == sizeof(float);

// The rounding error of log(1 + m) is added; integer results are exact.
template <class T>
inline Vec log2(Vec x) {
  constexpr float rest = 1.92596303e-8f; // the rounding error of kLog2e
  const auto [e, m, square, cubic] = log_parts(x);
  const Vec y = cubic - square * 0.5f, sum = m + y;
  const Vec lacking = kPrecise<T> ? (m - sum + y) * kLog2e + sum * rest : Vec{};
  return log_or_special(x, (sum * kLog2e + lacking) + e);
}

// Whether a power of e may not be a normal number.
inline bool any_far_out(Vec x) {
  return __builtin_expect(any_below(splat(87.0f), abs(x)), 0);
}

// n / (1 + exp(-x - more)), unless x is far out. For float32 the power is
// fitted to a relative error of 2⁻²⁸, and the rounding error of its sum with 1
// is corrected; for bfloat16 it is fitted to 2⁻¹⁷.
template <class T>
inline Vec over_logistic(Vec n, Vec x, Vec more = Vec{}) {
  const Vec shifted = x * -kLog2e + kMagic, k = shifted - kMagic;
  const Vec power = as_float((as_int(shifted) << 23) + 0x3f800000); // 2ᵏ
  const Vec r = (-x - k * kLog2) - (k * kLog2Rest + more);
  const Vec p = kPrecise<T>
                    ? polynomial(
                          r,
                          0.00138212356f,
                          0.00836866628f,
                          0.0416682586f,
                          0.166665211f,
                          0.49999994f)
                    : polynomial(r, 0.0412774943f, 0.16753532f, 0.5000512f);
  const Vec rest = r * r * p + r;
  const Vec e = power * rest + power, sum = e + 1.0f;
  const Vec y = reciprocal(sum);
  if constexpr (!kPrecise<T>) {
    return n * (y * (2.0f - sum * y));
  }
  const Vec one = splat(1.0f), lost = (max(e, one) - sum) + min(e, one);
  const Vec ratio = n * y;
  const Vec lacking = (n - sum * ratio) - lost * ratio;
  return copy_sign(lacking * y + ratio, n); // keeps -0
}

template <class T>
inline Vec sigmoid(Vec x) {
  if (any_far_out(x)) {
    const ExpParts parts = exp_parts(-min(splat(105.0f), abs(x)));
    const Vec tail = times_logistic(splat(1.0f), parts);
    return x < Vec{} ? tail : 1.0f - tail;
  }
  return over_logistic<T>(splat(1.0f), x);
}

template <class T>
inline Vec silu(Vec x) {
  if (any_far_out(x)) {
    const Vec a = min(splat(110.0f), abs(x)); // the tail is 0 beyond
    return less_tail(x, times_logistic(a, exp_parts(-a)));
  }
  return over_logistic<T>(x, x);
}

// Φ(-a) exp(a² / 2) is 1 / (√(2 π) (a + w)), where w is √(2 / π) at 0 and falls
// further out (Mills' ratio). w = (2 + n) / (1 + p) / √(2 π) with polynomials n
// and p without cancellation; its errors fade for large a. The whole is fitted
// to a relative error of 2⁻³⁰.
inline Vec gelu_anywhere(Vec x) {
  const Vec a = min(splat(14.5f), abs(x)); // the tail is 0 beyond
  // a² = square + rest exactly, and the power uses both.
  const Vec square = a * a, rest = rounded_off(a, a, square);
  const ExpParts parts = exp_parts(square * -0.5f, rest * -0.5f);
  const Vec p = a * polynomial(
                        a,
                        0.00248458935f,
                        0.029766921f,
                        0.170496047f,
                        0.5652951f,
                        1.08494353f);
  const Vec n =
      a *
      polynomial(a, 0.00622857129f, 0.0745831206f, 0.41560021f, 1.25902784f);
  // above / below = a (1 + p) / (2 + n + √(2 π) a (1 + p))
  const Vec above = a * p + a;
  const Vec added = multiply_add(above, splat(2.50662827f), n);
  const Vec below = added + 2.0f, r = reciprocal(below), ratio = above * r;
  // The rounding errors of both, which fade further out.
  const Vec more = (a - above) + a * p;
  const Vec less = (2.0f - below) + added + more * 2.50662827f;
  const Vec lacking = (above - ratio * below) + (more - ratio * less);
  return less_tail(x, times_power(ratio, lacking * r, parts));
}

// Φ(x) is sigmoid(u) with u = x (k + l x²), whose digits after the point all
// matter.
template <class T>
inline Vec gelu_tanh(Vec x) {
  constexpr float k = 1.59576917f, k_rest = -4.53406804e-8f;
  constexpr float l = 0.0713548139f, l_rest = 2.3988324e-9f;
  const Vec a = min(splat(10.8f), abs(x)); // the tail is 0 beyond
  const Vec square = a * a, v = square * l + k;
  // Their rounding errors. The larger term comes first in such a sum.
  const Vec rest = rounded_off(a, a, square) * l + (square * l_rest + k_rest);
  if (__builtin_expect(any_below(splat(kPrecise<T> ? 4.7f : 9.8f), a), 0)) {
    const Vec cubic = square * l, added = v - cubic;
    const Vec lacking = (k - added) + (cubic - (v - added)) +
                        rounded_off(square, splat(l), cubic) + rest;
    const Vec u = a * v;
    const ExpParts parts = exp_parts(-u, -(rounded_off(a, v, u) + a * lacking));
    return less_tail(x, times_logistic(a, parts));
  }
  const Vec u = x * v;
  if constexpr (!kPrecise<T>) {
    return over_logistic<T>(x, u);
  }
  const Vec lacking = multiply_add(square, splat(l), k - v) + rest;
  return over_logistic<T>(x, u, rounded_off(x, v, u) + x * lacking);
}

#ifdef __AVX512F__
// The terms of the table's polynomials for results of type T: lookups dominate
// the time. With five, bfloat16's error is at most 5e-4 of the tail.
template <class T>
constexpr int kTailTerms = kPrecise<T> ? 7 : 5;

// The same from a table, in half the time, unless x is far out.
template <class T>
inline Vec gelu(Vec x) {
  constexpr float kEnd = 31.4f * kTailStep; // nearest to the last multiple
  if (__builtin_expect(any_below(x, splat(-kEnd)), 0))
    return gelu_anywhere(x);
  const Vec a = min(splat(kEnd), abs(x));
  const VecI i = as_int(a * (1 / kTailStep) + kMagic);
  const Vec d = a - look_up(kTailCentres, i);
  Vec slope = look_up(kNormalTail[kTailTerms<T> - 1], i);
#pragma GCC unroll 6
  for (int term = kTailTerms<T> - 2; term > 0; --term)
    slope = slope * d + look_up(kNormalTail[term], i);
  const Vec tail = look_up(kNormalTail[0], i);
  if constexpr (!kPrecise<T>)
    return max(Vec{}, x) - a * (slope * d + tail);
  return max(Vec{}, x) - (a * tail + a * (slope * d));
}
#else
template <class T>
inline Vec gelu(Vec x) {
  return gelu_anywhere(x);
}
#endif

inline Vec mish(Vec x) {
  // tanh(log(1 + e)) = (e² + 2 e) / (e² + 2 e + 2)
  const Vec e = exp(min(splat(20.0f), x)), n = e * (e + 2.0f);
  return x * (n / (n + 2.0f));
}

} // namespace
} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
