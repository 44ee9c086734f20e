#include "third_party/zendnn/panel_dot.h"

#include <algorithm>
#include <array>
#include <utility>

// After all that other files share: the linker may choose the inline functions
// of this one.
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")

// GCC 12 takes its own way to leave a register undefined for a mistake.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

namespace zendnn::impl::cpu::x64 {
namespace {

constexpr int64_t kLanes = 16, kLine = 64;

template <bool pairs>
void add_product(__m512& sum, __m512i x, __m512i weight) {
  if constexpr (pairs) {
    sum = _mm512_dpbf16_ps(
        sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(weight));
  } else {
    sum = _mm512_fmadd_ps(
        _mm512_castsi512_ps(x), _mm512_castsi512_ps(weight), sum);
  }
}

// The sum of each of four vectors' lanes.
__m128 sums_of(const std::array<__m512, kDotColumns>& vectors) {
  const auto neighbours = [&](int64_t i) {
    const auto a = vectors[i], b = vectors[i + 1];
    return _mm512_castps_pd(
        _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)));
  };
  const auto low = neighbours(0), high = neighbours(2);
  const auto quads = _mm512_add_ps(
      _mm512_castpd_ps(_mm512_unpacklo_pd(low, high)),
      _mm512_castpd_ps(_mm512_unpackhi_pd(low, high)));
  const auto halves = _mm256_add_ps(
      _mm512_castps512_ps256(quads), _mm512_extractf32x8_ps(quads, 1));
  return _mm_add_ps(
      _mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
}

template <bool pairs, int64_t rows>
void dot_rows(const panel_dot_t& problem, int64_t width, float* sums) {
  for (int64_t column = 0; column < problem.columns; column += kDotColumns) {
    // The last tile repeats a column where there is none.
    std::array<const char*, kDotColumns> weights;
    for (int64_t j = 0; j < kDotColumns; ++j) {
      weights[j] = problem.weights + std::min(column + j, problem.columns - 1) *
                                         problem.weights_stride;
    }
    std::array<std::array<__m512, kDotColumns>, rows> sum;
    for (auto& row : sum) {
      row.fill(_mm512_setzero_ps());
    }
    const auto multiply = [&](int64_t byte, const auto& load) {
      std::array<__m512i, kDotColumns> weight;
#pragma GCC unroll 8
      for (int64_t j = 0; j < kDotColumns; ++j) {
        weight[j] = load(weights[j] + byte);
        if constexpr (rows <= kDotRows / 2) { // there is time for the next tile
          _mm_prefetch(
              weights[j] + byte + kDotColumns * problem.weights_stride,
              _MM_HINT_T0);
        }
      }
#pragma GCC unroll 8
      for (int64_t i = 0; i < rows; ++i) {
        const auto x = load(problem.src + i * problem.src_stride + byte);
#pragma GCC unroll 8
        for (int64_t j = 0; j < kDotColumns; ++j) {
          add_product<pairs>(sum[i][j], x, weight[j]);
        }
      }
    };
    const auto whole = problem.steps / kLanes * kLine;
    for (int64_t byte = 0; byte < whole; byte += kLine) {
      multiply(byte, [](const char* from) { return _mm512_loadu_si512(from); });
    }
    if (const auto rest = problem.steps % kLanes) {
      const auto mask = static_cast<__mmask16>((1U << rest) - 1);
      multiply(whole, [mask](const char* from) {
        return _mm512_maskz_loadu_epi32(mask, from);
      });
    }
#pragma GCC unroll 8
    for (int64_t i = 0; i < rows; ++i) {
      _mm_storeu_ps(sums + i * width + column, sums_of(sum[i]));
    }
  }
}

// By how many rows a tile has.
template <bool pairs, int64_t... rows>
constexpr auto dots_of(std::integer_sequence<int64_t, rows...>) {
  return std::array{dot_rows<pairs, rows + 1>...};
}

} // namespace

void dot_panel(
    const panel_dot_t& problem,
    bool pairs,
    int64_t width,
    float* sums) {
  constexpr auto sizes = std::make_integer_sequence<int64_t, kDotRows>();
  static constexpr auto floats = dots_of<false>(sizes);
  static constexpr auto bfloats = dots_of<true>(sizes);
  const auto tiles = (problem.rows + kDotRows - 1) / kDotRows;
  auto part = problem;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    part.rows = (problem.rows + tile) / tiles; // even, to a row
    (pairs ? bfloats : floats)[part.rows - 1](part, width, sums);
    part.src += part.rows * part.src_stride;
    sums += part.rows * width;
  }
}

} // namespace zendnn::impl::cpu::x64
