// The kernels' vectors, as wide as the instruction set of the compilation.
// Everything is local to the including file, and the standard library is not
// used, so that no inline function for one instruction set ends up in code for
// another.
#pragma once

#include "types.h"

// GCC 12 warns of the undefined registers in its own intrinsics.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#include <omp.h>

#ifndef ZENDNN_KERNEL_ISA
#error "Compile with -DZENDNN_KERNEL_ISA=avx2 or avx512."
#endif

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

#ifdef __AVX512F__
constexpr int kWidth = 16;
#else
constexpr int kWidth = 8;
#endif

// GCC's vector types: + - * / & | ^ << >> == < ?: work lane by lane, also with
// a scalar operand, and a * b + c becomes a fused multiply-add.
using Vec [[gnu::vector_size(4 * kWidth)]] = float;
using VecI [[gnu::vector_size(4 * kWidth)]] = int32_t;
using VecU [[gnu::vector_size(4 * kWidth)]] = uint32_t; // may overflow
using VecD [[gnu::vector_size(4 * kWidth)]] = double;   // half as many lanes

// The lanes of a vector that an access touches: all, or the first few.
struct Full {};
struct Tail {
  explicit Tail(int64_t count);
  int count;
#ifdef __AVX512F__
  __mmask16 mask;
#else
  __m256i mask;
#endif
};

inline Vec as_float(VecI x) {
  return reinterpret_cast<Vec>(x);
}
inline VecI as_int(Vec x) {
  return reinterpret_cast<VecI>(x);
}
inline VecU as_unsigned(Vec x) {
  return reinterpret_cast<VecU>(x);
}

#ifdef __AVX512F__

inline Tail::Tail(int64_t count)
    : count(static_cast<int>(count)),
      mask(static_cast<__mmask16>((1u << count) - 1)) {}

inline Vec splat(float x) {
  return _mm512_set1_ps(x);
}
inline VecI splat_int(int32_t x) {
  return reinterpret_cast<VecI>(_mm512_set1_epi32(x));
}
// If an operand is NaN, max and min return b.
inline Vec max(Vec a, Vec b) {
  return _mm512_max_ps(a, b);
}
inline Vec min(Vec a, Vec b) {
  return _mm512_min_ps(a, b);
}
inline Vec sqrt(Vec x) {
  return _mm512_sqrt_ps(x);
}
inline Vec round(Vec x) { // half to even
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT);
}
inline Vec floor(Vec x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEG_INF);
}
inline Vec ceil(Vec x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_POS_INF);
}
inline Vec reciprocal(Vec x) { // with a relative error of at most 2⁻¹⁴
  return _mm512_rcp14_ps(x);
}
// a / b, with the same precision, for finite a and b from 2⁻¹²⁰ to 2¹²⁰: a
// division would delay later instructions by 30 multiplications.
inline Vec quotient(Vec a, Vec b) {
  const Vec r = reciprocal(b), q = a * r;
  return (a - q * b) * r + q;
}
inline Vec multiply_add(Vec a, Vec b, Vec c) { // rounded once
  return _mm512_fmadd_ps(a, b, c);
}
// The number whose bits as Half are in the lower half of a lane, the upper half
// of which is 0; and the bits of the nearest Half.
inline Vec from_half(VecI bits) {
  return _mm512_cvtph_ps(
      _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(bits)));
}
inline VecI to_half(Vec x) {
  return reinterpret_cast<VecI>(_mm512_cvtepu16_epi32(
      _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)));
}
inline VecI to_int(Vec x) {
  return reinterpret_cast<VecI>(_mm512_cvtps_epi32(x));
}
inline Vec to_float(VecI x) {
  return _mm512_cvtepi32_ps(reinterpret_cast<__m512i>(x));
}
// x · 2^⌊n⌋ for n within ±250; overflows to infinity, and underflows through
// subnormals to 0.
inline Vec scale_by_power(Vec x, Vec n) {
  return _mm512_scalef_ps(x, n);
}
inline bool any_below(Vec x, Vec y) {
  return _mm512_cmp_ps_mask(x, y, _CMP_LT_OQ) != 0;
}
inline bool any_nan(Vec x) {
  return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q) != 0;
}
// One bit per lane of a comparison.
inline unsigned lanes_where(VecI condition) {
  return _mm512_movepi32_mask(reinterpret_cast<__m512i>(condition));
}
// table[i] for the last 5 bits of each lane i.
inline Vec look_up(const float (&table)[32], VecI i) {
  return _mm512_permutex2var_ps(
      _mm512_loadu_ps(table),
      reinterpret_cast<__m512i>(i),
      _mm512_loadu_ps(table + 16));
}
// table[i] for the last 4 bits of each lane i.
inline Vec look_up(const float (&table)[16], VecI i) {
  return _mm512_permutexvar_ps(
      reinterpret_cast<__m512i>(i), _mm512_loadu_ps(table));
}
inline float sum_lanes(Vec x) {
  return _mm512_reduce_add_ps(x);
}
inline double sum_lanes(VecD x) {
  return _mm512_reduce_add_pd(x);
}
inline VecD low_doubles(Vec x) {
  return _mm512_cvtps_pd(_mm512_castps512_ps256(x));
}
inline VecD high_doubles(Vec x) {
  return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
}
inline VecD load(const double* p) {
  return _mm512_loadu_pd(p);
}
inline void store(double* p, VecD x) {
  _mm512_storeu_pd(p, x);
}
inline Vec narrow(VecD low, VecD high) {
  return _mm512_insertf32x8(
      _mm512_castps256_ps512(_mm512_cvtpd_ps(low)), _mm512_cvtpd_ps(high), 1);
}
inline float max_lanes(Vec x) {
  return _mm512_reduce_max_ps(x);
}
// The first lanes of x, and the others of y.
inline Vec keep(Vec x, Tail w, Vec y) {
  return _mm512_mask_mov_ps(y, w.mask, x);
}

// Items of 1, 2 and 4 bytes, extended with zeros; lanes beyond a tail are 0.
inline VecI load_bits(const uint8_t* p, Full) {
  return reinterpret_cast<VecI>(
      _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p)));
}
inline VecI load_bits(const uint8_t* p, Tail w) {
  return reinterpret_cast<VecI>(
      _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(w.mask, p)));
}
inline VecI load_bits(const uint16_t* p, Full) {
  return reinterpret_cast<VecI>(
      _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)));
}
inline VecI load_bits(const uint16_t* p, Tail w) {
  return reinterpret_cast<VecI>(
      _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(w.mask, p)));
}
inline VecI load_bits(const uint32_t* p, Full) {
  return reinterpret_cast<VecI>(_mm512_loadu_si512(p));
}
inline VecI load_bits(const uint32_t* p, Tail w) {
  return reinterpret_cast<VecI>(_mm512_maskz_loadu_epi32(w.mask, p));
}
// The low bytes of each lane.
inline void store_bits(uint8_t* p, VecI x, Full) {
  _mm_storeu_si128(
      (__m128i*)p, _mm512_cvtepi32_epi8(reinterpret_cast<__m512i>(x)));
}
inline void store_bits(uint8_t* p, VecI x, Tail w) {
  _mm512_mask_cvtepi32_storeu_epi8(p, w.mask, reinterpret_cast<__m512i>(x));
}
inline void store_bits(uint16_t* p, VecI x, Full) {
  _mm256_storeu_si256(
      (__m256i*)p, _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(x)));
}
inline void store_bits(uint16_t* p, VecI x, Tail w) {
  _mm256_mask_storeu_epi16(
      p, w.mask, _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(x)));
}
inline void store_bits(uint32_t* p, VecI x, Full) {
  _mm512_storeu_si512(p, reinterpret_cast<__m512i>(x));
}
inline void store_bits(uint32_t* p, VecI x, Tail w) {
  _mm512_mask_storeu_epi32(p, w.mask, reinterpret_cast<__m512i>(x));
}

// a0 b0 a1 b1 …: the lower and the upper half of the interleaved lanes.
inline Vec interleave_low(Vec a, Vec b) {
  return __builtin_shuffle(
      a, b, VecI{0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23});
}
inline Vec interleave_high(Vec a, Vec b) {
  return __builtin_shuffle(
      a, b, VecI{8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31});
}
// Every second lane of both, from the first or the second lane on.
inline Vec even_lanes(Vec a, Vec b) {
  return __builtin_shuffle(
      a, b, VecI{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30});
}
inline Vec odd_lanes(Vec a, Vec b) {
  return __builtin_shuffle(
      a, b, VecI{1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31});
}

#else // AVX2

inline Tail::Tail(int64_t count)
    : count(static_cast<int>(count)),
      mask(_mm256_cmpgt_epi32(
          _mm256_set1_epi32(static_cast<int>(count)),
          _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))) {}

inline Vec splat(float x) {
  return _mm256_set1_ps(x);
}
inline VecI splat_int(int32_t x) {
  return reinterpret_cast<VecI>(_mm256_set1_epi32(x));
}
inline Vec max(Vec a, Vec b) {
  return _mm256_max_ps(a, b);
}
inline Vec min(Vec a, Vec b) {
  return _mm256_min_ps(a, b);
}
inline Vec sqrt(Vec x) {
  return _mm256_sqrt_ps(x);
}
inline Vec round(Vec x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline Vec floor(Vec x) {
  return _mm256_floor_ps(x);
}
inline Vec ceil(Vec x) {
  return _mm256_ceil_ps(x);
}
inline Vec quotient(Vec a, Vec b) {
  return a / b; // AVX2's approximation would need two corrections
}
inline Vec reciprocal(Vec x) {
  return 1.0f / x;
}
inline Vec multiply_add(Vec a, Vec b, Vec c) {
  return _mm256_fmadd_ps(a, b, c);
}
inline Vec from_half(VecI bits) {
  const auto both = reinterpret_cast<__m256i>(bits);
  return _mm256_cvtph_ps(_mm_packus_epi32(
      _mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1)));
}
inline VecI to_half(Vec x) {
  return reinterpret_cast<VecI>(
      _mm256_cvtepu16_epi32(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)));
}
inline VecI to_int(Vec x) {
  return reinterpret_cast<VecI>(_mm256_cvtps_epi32(x));
}
inline Vec to_float(VecI x) {
  return _mm256_cvtepi32_ps(reinterpret_cast<__m256i>(x));
}
inline Vec scale_by_power(Vec x, Vec n) {
  // In two steps, since the power itself may be subnormal.
  const VecI whole = to_int(floor(n)), half = whole >> 1;
  return x * as_float((half + 127) << 23) *
         as_float((whole - half + 127) << 23);
}
inline bool any_below(Vec x, Vec y) {
  return _mm256_movemask_ps(_mm256_cmp_ps(x, y, _CMP_LT_OQ)) != 0;
}
inline bool any_nan(Vec x) {
  return _mm256_movemask_ps(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)) != 0;
}
inline unsigned lanes_where(VecI condition) {
  return _mm256_movemask_ps(as_float(condition));
}
inline Vec look_up(const float (&table)[16], VecI i) {
  const auto half = [&](int first) {
    return _mm256_permutevar8x32_ps(
        _mm256_loadu_ps(table + first), reinterpret_cast<__m256i>(i));
  };
  return _mm256_blendv_ps(half(0), half(8), as_float(i << 28));
}
inline float sum_lanes(Vec x) {
  __m128 y = _mm256_castps256_ps128(x) + _mm256_extractf128_ps(x, 1);
  y += _mm_movehl_ps(y, y);
  return y[0] + y[1];
}
inline double sum_lanes(VecD x) {
  return (x[0] + x[1]) + (x[2] + x[3]);
}
inline VecD low_doubles(Vec x) {
  return _mm256_cvtps_pd(_mm256_castps256_ps128(x));
}
inline VecD high_doubles(Vec x) {
  return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
}
inline VecD load(const double* p) {
  return _mm256_loadu_pd(p);
}
inline void store(double* p, VecD x) {
  _mm256_storeu_pd(p, x);
}
inline Vec narrow(VecD low, VecD high) {
  return _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low));
}
inline float max_lanes(Vec x) {
  __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_max_ps(y, _mm_movehl_ps(y, y));
  return y[0] > y[1] ? y[0] : y[1];
}
inline Vec keep(Vec x, Tail w, Vec y) {
  return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(w.mask));
}

inline VecI load_bits(const uint8_t* p, Full) {
  return reinterpret_cast<VecI>(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p)));
}
inline VecI load_bits(const uint16_t* p, Full) {
  return reinterpret_cast<VecI>(
      _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)));
}
inline VecI load_bits(const uint32_t* p, Full) {
  return reinterpret_cast<VecI>(_mm256_loadu_si256((const __m256i*)p));
}
inline VecI load_bits(const uint32_t* p, Tail w) {
  return reinterpret_cast<VecI>(_mm256_maskload_epi32((const int*)p, w.mask));
}
inline void store_bits(uint8_t* p, VecI x, Full) {
  const __m256i bytes = _mm256_shuffle_epi8(
      reinterpret_cast<__m256i>(x), _mm256_set1_epi32(0x0c080400));
  __builtin_memcpy(p, &bytes, 4);
  __builtin_memcpy(p + 4, (const char*)&bytes + 16, 4);
}
inline void store_bits(uint16_t* p, VecI x, Full) {
  const __m256i low =
      _mm256_and_si256(reinterpret_cast<__m256i>(x), _mm256_set1_epi32(0xffff));
  const __m256i packed =
      _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
  _mm_storeu_si128((__m128i*)p, _mm256_castsi256_si128(packed));
}
inline void store_bits(uint32_t* p, VecI x, Full) {
  _mm256_storeu_si256((__m256i*)p, reinterpret_cast<__m256i>(x));
}
inline void store_bits(uint32_t* p, VecI x, Tail w) {
  _mm256_maskstore_epi32((int*)p, w.mask, reinterpret_cast<__m256i>(x));
}
// AVX2 has no masks for items below 4 bytes.
template <class Bits>
VecI load_bits(const Bits* p, Tail w) {
  Bits lanes[kWidth] = {};
  for (int i = 0; i < w.count; ++i)
    lanes[i] = p[i];
  return load_bits(lanes, Full{});
}
template <class Bits>
void store_bits(Bits* p, VecI x, Tail w) {
  Bits lanes[kWidth];
  store_bits(lanes, x, Full{});
  for (int i = 0; i < w.count; ++i)
    p[i] = lanes[i];
}

inline Vec interleave_low(Vec a, Vec b) {
  return __builtin_shuffle(a, b, VecI{0, 8, 1, 9, 2, 10, 3, 11});
}
inline Vec interleave_high(Vec a, Vec b) {
  return __builtin_shuffle(a, b, VecI{4, 12, 5, 13, 6, 14, 7, 15});
}
inline Vec even_lanes(Vec a, Vec b) {
  return __builtin_shuffle(a, b, VecI{0, 2, 4, 6, 8, 10, 12, 14});
}
inline Vec odd_lanes(Vec a, Vec b) {
  return __builtin_shuffle(a, b, VecI{1, 3, 5, 7, 9, 11, 13, 15});
}

#endif

// Adds the lanes of x in pairs, in double.
inline VecD fold(Vec x) {
  return low_doubles(x) + high_doubles(x);
}
// The sum of the lanes of both.
inline double sum_in_double(Vec x, Vec y) {
  return sum_lanes(fold(x) + fold(y));
}
// The maximum, or NaN.
inline Vec max_or_nan(Vec a, Vec b) {
  return a == a ? max(a, b) : a;
}

// Prevents the compiler from fusing the product x with a later addition, so
// that it is rounded in the same way everywhere.
inline Vec rounded(Vec x) {
#ifdef __AVX512F__
  __asm__("" : "+v"(x));
#else
  __asm__("" : "+x"(x));
#endif
  return x;
}

// The rounding error a · b - product.
inline Vec rounded_off(Vec a, Vec b, Vec product) {
  return multiply_add(a, b, -product);
}
inline Vec keep(Vec x, Full, Vec) {
  return x;
}
inline Vec abs(Vec x) {
  return as_float(as_int(x) & 0x7fffffff);
}
inline Vec copy_sign(Vec x, Vec sign) {
  return as_float(as_int(x) | (as_int(sign) & splat_int(INT32_MIN)));
}

// The bits of the nearest bfloat16, in the upper half of each lane.
inline VecI round_bits(Vec x) {
  const VecU bits = as_unsigned(x);
  const VecU rounded = bits + 0x7fff + ((bits >> 16) & 1);
  return reinterpret_cast<VecI>(x == x ? rounded : bits | 0x400000);
}

// Loads and stores of each type; lanes beyond a tail are 0.
template <class W>
Vec load(const float* p, W w) {
  return as_float(load_bits(reinterpret_cast<const uint32_t*>(p), w));
}
template <class W>
Vec load(const BFloat16* p, W w) {
  return as_float(load_bits(reinterpret_cast<const uint16_t*>(p), w) << 16);
}
template <class W>
Vec load(const Half* p, W w) {
  return from_half(load_bits(reinterpret_cast<const uint16_t*>(p), w));
}
template <class W>
void store(float* p, Vec x, W w) {
  store_bits(reinterpret_cast<uint32_t*>(p), as_int(x), w);
}
template <class W>
void store(BFloat16* p, Vec x, W w) {
  store_bits(reinterpret_cast<uint16_t*>(p), round_bits(x) >> 16, w);
}
template <class W>
void store(Half* p, Vec x, W w) {
  store_bits(reinterpret_cast<uint16_t*>(p), to_half(x), w);
}
inline Vec load(const float* p) {
  return load(p, Full{});
}
inline void store(float* p, Vec x) {
  store(p, x, Full{});
}
inline float load_one(const float* p) {
  return *p;
}
inline float load_one(const BFloat16* p) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(p->bits) << 16);
}
inline void store_one(float* p, float x) {
  *p = x;
}
inline void store_one(BFloat16* p, float x) {
  *p = {static_cast<uint16_t>(
      static_cast<uint32_t>(round_bits(splat(x))[0]) >> 16)};
}

#ifdef __AVX512BF16__
// A vector of up to `count` numbers in pairs, padded with zeros.
inline Vec load_pairs(const BFloat16* p, int64_t count) {
  const auto lanes =
      static_cast<__mmask32>(count < 32 ? (1u << count) - 1 : ~0u);
  return reinterpret_cast<Vec>(_mm512_maskz_loadu_epi16(lanes, p));
}
#endif

inline bool all_finite(Vec x) {
  return !any_nan(x - x);
}

// Transposes a square of lanes: each round interleaves the first half of the
// rows with the second, which doubles the parts in place.
inline void transpose(Vec (&rows)[kWidth]) {
#pragma GCC unroll 4
  for (int round = 1; round < kWidth; round *= 2) {
    Vec next[kWidth];
#pragma GCC unroll 8
    for (int i = 0; i < kWidth / 2; ++i) {
      next[2 * i] = interleave_low(rows[i], rows[i + kWidth / 2]);
      next[2 * i + 1] = interleave_high(rows[i], rows[i + kWidth / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i)
      rows[i] = next[i];
  }
}

// Lane i of the result is the sum of rows[i].
template <int count>
inline Vec sum_each(const Vec (&rows)[count]) {
  if constexpr (count == 1) {
    return rows[0];
  } else {
    Vec half[count / 2];
#pragma GCC unroll 8
    for (int i = 0; i < count / 2; ++i)
      half[i] = interleave_low(rows[i], rows[i + count / 2]) +
                interleave_high(rows[i], rows[i + count / 2]);
    return sum_each(half);
  }
}

inline int64_t min(int64_t a, int64_t b) {
  return a < b ? a : b;
}
inline int64_t max(int64_t a, int64_t b) {
  return a > b ? a : b;
}
inline int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
inline int64_t round_up(int64_t a, int64_t b) {
  return ceil_div(a, b) * b;
}

// Calls f(i, lanes) for each vector of [0, size).
template <class F>
inline void each_vector(int64_t size, F f) {
  int64_t i = 0;
  for (; i + kWidth <= size; i += kWidth)
    f(i, Full{});
  if (i < size)
    f(i, Tail(size - i));
}

// Reduces value(i, lanes) over [0, size) lane by lane, in four independent
// chains. `neutral` is the padding.
template <class V, class Value, class Combine>
inline V reduce(int64_t size, V neutral, Value value, Combine combine) {
  V a = neutral, b = neutral, c = neutral, d = neutral;
  int64_t i = 0;
  for (; i + 4 * kWidth <= size; i += 4 * kWidth) {
    a = combine(a, value(i, Full{}));
    b = combine(b, value(i + kWidth, Full{}));
    c = combine(c, value(i + 2 * kWidth, Full{}));
    d = combine(d, value(i + 3 * kWidth, Full{}));
  }
  for (; i + kWidth <= size; i += kWidth)
    a = combine(a, value(i, Full{}));
  if (i < size) {
    const Tail tail(size - i);
    b = combine(b, keep(value(i, tail), tail, neutral));
  }
  return combine(combine(a, b), combine(c, d));
}
template <class Value>
inline float sum_of(int64_t size, Value value) {
  return sum_lanes(
      reduce(size, Vec{}, value, [](Vec a, Vec b) { return a + b; }));
}
template <class Value>
inline float max_of(int64_t size, Value value) {
  return max_lanes(
      reduce(size, splat(-__builtin_inff()), value, [](Vec a, Vec b) {
        return max(a, b);
      }));
}

// Minimum elements per thread, for little work per element.
constexpr int64_t kGrain = 16384;

// The threads to use: all if there is work for two, since waking only some
// costs more than it saves.
inline int threads_for(int64_t size, int64_t grain) {
  return size >= 2 * grain && !omp_in_parallel() ? omp_get_max_threads() : 1;
}

// Calls f(thread, threads) in `threads` threads. The team has all threads:
// libgomp ends the threads outside a smaller team, and creates them again for
// the next larger one.
template <class F>
inline void in_threads(int threads, F f) {
  if (threads == 1)
    return f(0, 1);
#pragma omp parallel
  {
    const int thread = omp_get_thread_num();
    const int count =
        omp_get_num_threads() < threads ? omp_get_num_threads() : threads;
    if (thread < count)
      f(thread, count);
  }
}

// The next piece of work, for dynamic distribution over threads.
inline int64_t take(int64_t& next) {
  int64_t taken;
#pragma omp atomic capture
  taken = next++;
  return taken;
}

// Calls f(begin, end) for consecutive parts of [0, size), one per thread. Parts
// start at multiples of `step`; `grain` is the minimum per thread.
template <class F>
inline void parallel(int64_t size, int64_t step, int64_t grain, F f) {
  in_threads(threads_for(size, grain), [&](int64_t thread, int64_t threads) {
    const int64_t steps = ceil_div(size, step);
    const int64_t begin = steps * thread / threads * step;
    const int64_t end = min(steps * (thread + 1) / threads * step, size);
    if (begin < end)
      f(begin, end);
  });
}

// Calls f with a null pointer of the type that `dtype` names, one of those that
// a kernel takes. For any other it throws std::invalid_argument, which ends the
// process inside of a parallel region.
template <class T, class... Others, class F>
inline decltype(auto) with_type(DType dtype, F f) {
  if constexpr (sizeof...(Others) > 0) {
    if (dtype != kTypeOf<T>)
      return with_type<Others...>(dtype, f);
  } else {
    if (dtype != kTypeOf<T>)
      refuse(dtype);
  }
  return f(static_cast<T*>(nullptr));
}

// The same of a list of types.
template <class... Types, class F>
inline decltype(auto) with_type(TypeList<Types...>, DType dtype, F f) {
  return with_type<Types...>(dtype, f);
}

} // namespace
} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
