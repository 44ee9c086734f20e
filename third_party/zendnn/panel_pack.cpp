#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#include "third_party/zendnn/panel_pack.h"

// GCC 12 takes its own way to leave a register undefined for a mistake.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

namespace zendnn::impl::cpu::x64 {
namespace {

constexpr int kLanes = 16;

// Of the first `count` lanes; none if it is negative.
__mmask16 first_lanes(int64_t count) {
  return count >= kLanes ? 0xffff
         : count > 0     ? static_cast<__mmask16>((1u << count) - 1)
                         : __mmask16{0};
}

// Interleaving the first half of the rows with the second one doubles what is
// in place with each round.
void transpose(__m512i (&rows)[kLanes]) {
  const __m512i low =
      _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(kLanes / 2));
#pragma GCC unroll 4
  for (int round = 1; round < kLanes; round *= 2) {
    __m512i next[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 2; ++i) {
      const __m512i a = rows[i], b = rows[i + kLanes / 2];
      next[2 * i] = _mm512_permutex2var_epi32(a, low, b);
      next[2 * i + 1] = _mm512_permutex2var_epi32(a, high, b);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      rows[i] = next[i];
    }
  }
}

} // namespace

void pack_columns(const panel_source_t& source, int vectors, float* panel) {
  const int64_t width = vectors * kLanes;
  for (int64_t column = 0; column < width; column += kLanes) {
    const char* from = source.first + column * source.stride;
    for (int64_t k = 0; k < source.depth; k += kLanes) {
      const auto mask = first_lanes(source.depth - k);
      __m512i square[kLanes];
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes; ++i) {
        square[i] = column + i < source.columns
                        ? _mm512_maskz_loadu_epi32(
                              mask, from + i * source.stride + 4 * k)
                        : _mm512_setzero_si512();
      }
      transpose(square);
      float* to = panel + k * width + column;
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes; ++i) {
        if (k + i < source.depth) {
          _mm512_storeu_si512(to + i * width, square[i]);
        }
      }
    }
  }
}

void pack_rows(const panel_source_t& source, int vectors, float* panel) {
  const char* from = source.first;
  for (int64_t k = 0; k < source.depth; ++k, from += source.stride) {
    for (int j = 0; j < vectors; ++j, panel += kLanes) {
      const auto mask = first_lanes(source.columns - j * kLanes);
      _mm512_storeu_si512(
          panel, _mm512_maskz_loadu_epi32(mask, from + 4 * j * kLanes));
    }
  }
}

void pack_pairs(const panel_source_t& source, int vectors, float* panel) {
  const char* from = source.first;
  for (int64_t k = 0; k < source.depth; ++k, from += 2 * source.stride) {
    for (int j = 0; j < vectors; ++j, panel += kLanes) {
      const auto mask = first_lanes(source.columns - j * kLanes);
      const auto half = [&](int64_t row) {
        return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(
            mask, from + row * source.stride + 2 * j * kLanes));
      };
      _mm512_storeu_si512(
          panel, _mm512_or_si512(half(0), _mm512_slli_epi32(half(1), 16)));
    }
  }
}

} // namespace zendnn::impl::cpu::x64
