#include "third_party/zendnn/panel_dot.h"

#include <algorithm>
#include <array>
#include <utility>

// The pragma follows all shared headers, since the linker may choose this
// file's copy of their inline functions.
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")

// GCC 12 warns of the undefined registers in its own intrinsics.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

namespace zendnn::impl::cpu::x64 {
namespace {

constexpr int64_t kLanes = 16, kLine = 64;
// Steps of the depth whose columns stay in the L1 cache for all rows.
constexpr int64_t kMostSteps = 1024;

static_assert(kDotColumns == 4);

// One vector per column of a tile.
struct columns_t {
  __m512 a, b, c, d;
};

template <bool pairs>
__m512 multiply_add(__m512 sum, __m512 x, __m512 y) {
  if constexpr (pairs) {
    return _mm512_dpbf16_ps(
        sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(y));
  } else {
    return _mm512_fmadd_ps(x, y, sum);
  }
}

template <bool pairs>
void add_products(columns_t& sums, __m512 x, const columns_t& weights) {
  sums.a = multiply_add<pairs>(sums.a, x, weights.a);
  sums.b = multiply_add<pairs>(sums.b, x, weights.b);
  sums.c = multiply_add<pairs>(sums.c, x, weights.c);
  sums.d = multiply_add<pairs>(sums.d, x, weights.d);
}

// The sum over the lanes of each column.
__m128 over_lanes(const columns_t& sums) {
  const auto low = _mm512_castps_pd(_mm512_add_ps(
      _mm512_unpacklo_ps(sums.a, sums.b), _mm512_unpackhi_ps(sums.a, sums.b)));
  const auto high = _mm512_castps_pd(_mm512_add_ps(
      _mm512_unpacklo_ps(sums.c, sums.d), _mm512_unpackhi_ps(sums.c, sums.d)));
  const auto quads = _mm512_add_ps(
      _mm512_castpd_ps(_mm512_unpacklo_pd(low, high)),
      _mm512_castpd_ps(_mm512_unpackhi_pd(low, high)));
  const auto halves = _mm256_add_ps(
      _mm512_castps512_ps256(quads), _mm512_extractf32x8_ps(quads, 1));
  return _mm_add_ps(
      _mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
}

// A tile, over a part of the depth.
struct tile_t {
  const char* src;
  int64_t src_stride; // bytes from row to row
  std::array<const char*, kDotColumns> weights;
  int64_t ahead; // bytes from the weights to the prefetched ones
  int64_t steps;
  int64_t width; // of the sums
  float* sums;
  bool first; // otherwise adds to the sums
};

// Row indices are compile-time constants, so that all sums stay in registers.
template <bool pairs, int64_t... row>
void dot(const tile_t& tile, std::integer_sequence<int64_t, row...>) {
  columns_t sums[]{((void)row, columns_t{})...};
  const auto advance = [&](int64_t byte,
                           __mmask16 mask) __attribute__((always_inline)) {
    const auto load = [&](const char* from, __m512& to) {
      to = _mm512_maskz_loadu_ps(mask, from + byte);
    };
    columns_t weights;
    load(tile.weights[0], weights.a);
    load(tile.weights[1], weights.b);
    load(tile.weights[2], weights.c);
    load(tile.weights[3], weights.d);
    for (const auto* from : tile.weights) {
      _mm_prefetch(from + byte + tile.ahead, _MM_HINT_T0);
    }
    __m512 x;
    ((load(tile.src + row * tile.src_stride, x),
      add_products<pairs>(sums[row], x, weights)),
     ...);
  };
  const auto whole = tile.steps / kLanes * kLine;
  for (int64_t byte = 0; byte < whole; byte += kLine) {
    advance(byte, 0xffff);
  }
  if (const auto rest = tile.steps % kLanes) {
    advance(whole, static_cast<__mmask16>((1U << rest) - 1));
  }
  const auto store = [&](float* to, const columns_t& of) {
    const auto sum = over_lanes(of);
    _mm_storeu_ps(to, tile.first ? sum : _mm_add_ps(sum, _mm_loadu_ps(to)));
  };
  (store(tile.sums + row * tile.width, sums[row]), ...);
}

template <bool pairs, int64_t rows>
void dot_rows(const tile_t& tile) {
  dot<pairs>(tile, std::make_integer_sequence<int64_t, rows>());
}

// Indexed by the rows of a tile minus one.
template <bool pairs>
constexpr void (*kDots[kDotRows])(const tile_t&){
    dot_rows<pairs, 1>,
    dot_rows<pairs, 2>,
    dot_rows<pairs, 3>,
    dot_rows<pairs, 4>,
    dot_rows<pairs, 5>,
    dot_rows<pairs, 6>};

} // namespace

void dot_panel(
    const panel_dot_t& problem,
    bool pairs,
    int64_t width,
    float* sums) {
  const auto& dots = pairs ? kDots<true> : kDots<false>;
  const auto tiles = (problem.rows + kDotRows - 1) / kDotRows;
  for (int64_t column = 0; column < problem.columns; column += kDotColumns) {
    for (int64_t step = 0; step < problem.steps; step += kMostSteps) {
      tile_t tile{};
      for (int64_t j = 0; j < kDotColumns; ++j) {
        // The last tile repeats its last column in place of missing ones.
        tile.weights[j] =
            problem.weights + 4 * step +
            std::min(column + j, problem.columns - 1) * problem.weights_stride;
      }
      tile.src = problem.src + 4 * step;
      tile.src_stride = problem.src_stride;
      tile.steps = std::min(kMostSteps, problem.steps - step);
      tile.width = width;
      tile.sums = sums + column;
      tile.first = step == 0;
      for (int64_t i = 0; i < tiles; ++i) {
        if (i == tiles - 1) { // prefetches for the next block or columns
          tile.ahead = step + kMostSteps < problem.steps
                           ? 4 * kMostSteps
                           : kDotColumns * problem.weights_stride - 4 * step;
        }
        const auto rows = (problem.rows + i) / tiles; // even, up to one row
        dots[rows - 1](tile);
        tile.src += rows * problem.src_stride;
        tile.sums += rows * width;
      }
    }
  }
}

} // namespace zendnn::impl::cpu::x64
