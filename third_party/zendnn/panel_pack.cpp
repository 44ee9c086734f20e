#include "third_party/zendnn/panel_pack.h"

// The pragma follows all shared headers, since the linker may choose this
// file's copy of their inline functions.
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")

// GCC 12 warns of the undefined registers in its own intrinsics.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

namespace zendnn::impl::cpu::x64 {
namespace {

constexpr int kLanes = 16;

// The mask of the first `count` lanes; empty if it is negative.
__mmask16 first_lanes(int64_t count) {
  return count >= kLanes ? 0xffff
         : count > 0     ? static_cast<__mmask16>((1u << count) - 1)
                         : __mmask16{0};
}

// Four items of each of four rows, which are `apart` bytes from each other.
__m512i load_quads(const char* from, int64_t apart) {
  const auto quad = [&](int64_t i) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * apart));
  };
  // Broadcasts from memory need no shuffle.
  __m512i quads = _mm512_castsi128_si512(quad(0));
  quads = _mm512_mask_broadcast_i32x4(quads, 0x00f0, quad(1));
  quads = _mm512_mask_broadcast_i32x4(quads, 0x0f00, quad(2));
  return _mm512_mask_broadcast_i32x4(quads, 0xf000, quad(3));
}

// Item i of row j becomes item j of row i. Four columns are transposed at a
// time, within lanes of four items.
void transpose(const char* from, int64_t stride, float* to, int64_t width) {
#pragma GCC unroll 4
  for (int64_t quad = 0; quad < 4; ++quad, from += 16, to += 4 * width) {
    const __m512i a = load_quads(from, 4 * stride);
    const __m512i b = load_quads(from + stride, 4 * stride);
    const __m512i c = load_quads(from + 2 * stride, 4 * stride);
    const __m512i d = load_quads(from + 3 * stride, 4 * stride);
    const __m512i ab_low = _mm512_unpacklo_epi32(a, b);
    const __m512i ab_high = _mm512_unpackhi_epi32(a, b);
    const __m512i cd_low = _mm512_unpacklo_epi32(c, d);
    const __m512i cd_high = _mm512_unpackhi_epi32(c, d);
    _mm512_storeu_si512(to, _mm512_unpacklo_epi64(ab_low, cd_low));
    _mm512_storeu_si512(to + width, _mm512_unpackhi_epi64(ab_low, cd_low));
    _mm512_storeu_si512(
        to + 2 * width, _mm512_unpacklo_epi64(ab_high, cd_high));
    _mm512_storeu_si512(
        to + 3 * width, _mm512_unpackhi_epi64(ab_high, cd_high));
  }
}

// The same for a partial square.
void transpose_part(
    const char* from,
    int64_t stride,
    int64_t rows,
    int64_t items,
    float* to,
    int64_t width) {
  alignas(64) float whole[kLanes][kLanes]{};
  alignas(64) float transposed[kLanes][kLanes];
  for (int64_t i = 0; i < rows && i < kLanes; ++i) {
    _mm512_store_si512(
        whole[i],
        _mm512_maskz_loadu_epi32(first_lanes(items), from + i * stride));
  }
  transpose(
      reinterpret_cast<const char*>(whole), sizeof *whole, *transposed, kLanes);
  for (int64_t i = 0; i < items && i < kLanes; ++i) {
    _mm512_storeu_si512(to + i * width, _mm512_load_si512(transposed[i]));
  }
}

} // namespace

void pack_columns(const panel_source_t& source, int64_t width, float* panel) {
  for (int64_t column = 0; column < width; column += kLanes) {
    const char* from = source.first + column * source.stride;
    const int64_t rows = source.columns - column;
    for (int64_t k = 0; k < source.depth; k += kLanes) {
      float* to = panel + k * width + column;
      if (rows >= kLanes && source.depth - k >= kLanes) {
        transpose(from + 4 * k, source.stride, to, width);
      } else {
        transpose_part(
            from + 4 * k, source.stride, rows, source.depth - k, to, width);
      }
    }
  }
}

void pack_rows(const panel_source_t& source, int64_t width, float* panel) {
  const char* from = source.first;
  for (int64_t k = 0; k < source.depth; ++k, from += source.stride) {
    for (int64_t j = 0; j < width; j += kLanes, panel += kLanes) {
      const auto mask = first_lanes(source.columns - j);
      _mm512_storeu_si512(panel, _mm512_maskz_loadu_epi32(mask, from + 4 * j));
    }
  }
}

void pack_pairs(const panel_source_t& source, int64_t width, float* panel) {
  const char* from = source.first;
  for (int64_t k = 0; k < source.depth; ++k, from += 2 * source.stride) {
    for (int64_t j = 0; j < width; j += kLanes, panel += kLanes) {
      const auto mask = first_lanes(source.columns - j);
      const auto half = [&](int64_t row) {
        return _mm512_cvtepu16_epi32(
            _mm256_maskz_loadu_epi16(mask, from + row * source.stride + 2 * j));
      };
      _mm512_storeu_si512(
          panel, _mm512_or_si512(half(0), _mm512_slli_epi32(half(1), 16)));
    }
  }
}

} // namespace zendnn::impl::cpu::x64
