// Attention's bfloat16 products with the CPU's instructions for these: packing
// of operands in pairs, and products on AMX tiles if available.
#pragma once

#include "attention_tiles.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

#ifdef __AMX_BF16__
// A tile has 16 rows of 16 sums or of 16 pairs. Tiles 0 to 3 are two by two
// tiles of C; 4 and 5 hold A, and 6 and 7 hold B.
constexpr int64_t kPairRows = 16, kTileColumns = 16, kPairDepth = 32;
constexpr int64_t kPairStrip = 2 * kPairRows;

struct alignas(64) TileShapes {
  uint8_t palette = 1, first_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileShapes kTileShapes;

template <>
struct Tiles<BFloat16> {
  Tiles() {
    _tile_loadconfig(&kTileShapes);
  }
  ~Tiles() {
    _tile_release();
  }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

template <bool two_rows, bool two_columns>
void gemm_tiles(
    const Gemm<BFloat16, BFloat16>& g,
    const BFloat16* a,
    const BFloat16* b,
    float* c) {
  const int64_t a_bytes = g.a_stride * 2, b_bytes = g.b_stride * 2,
                c_bytes = g.c_stride * 4;
  float* below = c + kPairRows * g.c_stride;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  if (g.accumulate) {
    _tile_loadd(0, c, c_bytes);
    if constexpr (two_columns)
      _tile_loadd(1, c + kTileColumns, c_bytes);
    if constexpr (two_rows)
      _tile_loadd(2, below, c_bytes);
    if constexpr (two_rows && two_columns)
      _tile_loadd(3, below + kTileColumns, c_bytes);
  }
  for (int64_t k = 0; k < g.depth; k += kPairDepth / 2) {
    _tile_loadd(4, a, a_bytes);
    _tile_loadd(6, b, b_bytes);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (two_columns) {
      _tile_loadd(7, b + 2 * kTileColumns, b_bytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (two_rows) {
      _tile_loadd(5, a + kPairRows * g.a_stride, a_bytes);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (two_rows && two_columns)
      _tile_dpbf16ps(3, 5, 7);
    a += kPairDepth;
    b += kPairDepth / 2 * g.b_stride;
  }
  _tile_stored(0, c, c_bytes);
  if constexpr (two_columns)
    _tile_stored(1, c + kTileColumns, c_bytes);
  if constexpr (two_rows)
    _tile_stored(2, below, c_bytes);
  if constexpr (two_rows && two_columns)
    _tile_stored(3, below + kTileColumns, c_bytes);
}

// Rows of A and C, and columns, are padded to whole tiles.
inline void gemm(const Gemm<BFloat16, BFloat16>& g) {
  constexpr void (*tiles[2][2])(
      const Gemm<BFloat16, BFloat16>&,
      const BFloat16*,
      const BFloat16*,
      float*){
      {gemm_tiles<false, false>, gemm_tiles<false, true>},
      {gemm_tiles<true, false>, gemm_tiles<true, true>}};
  // The compiler does not see the instructions' memory accesses.
  asm volatile("" ::: "memory");
  for (int64_t j = 0; j < g.columns; j += 2 * kTileColumns) {
    const BFloat16* b = g.b + j / kPanel * g.b_panel_stride + 2 * (j % kPanel);
    const bool two_columns = g.columns - j > kTileColumns;
    for (int64_t i = 0; i < g.rows; i += 2 * kPairRows) {
      const bool two_rows = g.rows - i > kPairRows;
      tiles[two_rows][two_columns](
          g, g.a + i * g.a_stride, b, g.c + i * g.c_stride + j);
    }
  }
  asm volatile("" ::: "memory");
}
#else
constexpr int64_t kPairRows = kTileRows, kPairDepth = 2;
constexpr int64_t kPairStrip = 4 * kPairRows;
#endif

inline void store_pairs(BFloat16* p, Vec pairs) {
  store(reinterpret_cast<float*>(p), pairs);
}

// Packing pads each operand with zeros to a multiple of kPairDepth along the
// depth.

// Packs a query; the next one is `stride` away.
inline void
pack_query(const BFloat16* q, int64_t stride, int64_t size, BFloat16* packed) {
  for (int64_t d = 0; d < size; d += 2 * kWidth) {
    store_pairs(packed + d, load_pairs(q + d, size - d));
    prefetch_row(q + d, stride);
  }
}

// Packs keys (count, size) as kᵀ.
inline void pack_keys(
    const BFloat16* k,
    int64_t stride,
    int64_t count,
    int64_t size,
    BFloat16* packed) {
  const int64_t depth = round_up(size, kPairDepth);
  for (int64_t key = 0; key < count; key += kWidth) {
    BFloat16* column =
        packed + key / kPanel * kPanel * depth + key % kPanel * 2;
    const int64_t last = min(count - key, kWidth) - 1;
    for (int64_t d = 0; d < size; d += 2 * kWidth) {
      Vec square[kWidth];
#pragma GCC unroll 16
      for (int64_t i = 0; i < kWidth; ++i) {
        const BFloat16* row = k + (key + min(i, last)) * stride + d;
        square[i] = load_pairs(row, size - d);
        prefetch_row(row, stride);
      }
      transpose(square);
      const int64_t pairs = min((depth - d) / 2, kWidth);
      for (int64_t i = 0; i < pairs; ++i)
        store_pairs(column + (d + 2 * i) * kPanel, square[i]);
    }
  }
}

inline void pack_values(
    const BFloat16* v,
    int64_t stride,
    int64_t count,
    int64_t size,
    BFloat16* packed,
    int64_t panel_stride) {
  const int64_t depth = round_up(count, kPairDepth);
  for (int64_t j = 0; j < size; j += kPanel, packed += panel_stride)
    for (int64_t key = 0; key < depth; key += 2)
      each_vector(min(size - j, kPanel), [&](int64_t d, auto lanes) {
        const BFloat16* row = v + key * stride + j + d;
        const auto bits = [&](int64_t i) {
          return key + i < count
                     ? load_bits(
                           reinterpret_cast<const uint16_t*>(row + i * stride),
                           lanes)
                     : VecI{};
        };
        store_pairs(
            packed + key * kPanel + 2 * d, as_float(bits(0) | bits(1) << 16));
        prefetch_row(row, stride);
      });
}

// Rounds like the products' instructions, which flush subnormals to 0.
inline void store_weights(BFloat16* p, Vec x, Full) {
  _mm256_storeu_si256(
      reinterpret_cast<__m256i*>(p),
      reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
}
inline void store_weights(BFloat16* p, Vec x, Tail w) {
  _mm256_mask_storeu_epi16(
      p, w.mask, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
}

} // namespace
} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
