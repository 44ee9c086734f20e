// The parts of attention and its gradient: matrix products of blocks in the
// cache, packing of blocks, and masks.
#pragma once

#include "attention.h"

#include "vec.h"
#include "vecmath.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

// C (rows, columns) = A (rows, depth) · B (depth, columns). A register tile of
// C has kTileRows × kTileVectors vectors. B is split into panels of the tile's
// width; packed panels are consecutive, each contiguous (depth, kPanel).
constexpr int kTileRows = 6;
constexpr int kTileVectors = kWidth == 16 ? 4 : 2;
constexpr int64_t kPanel = kTileVectors * kWidth;

template <class B, class A = float>
struct Gemm {
  const A* a;
  int64_t a_stride, a_step; // between rows, and along the depth
  const B* b;
  int64_t b_stride, b_panel_stride;
  float* c;
  int64_t c_stride;
  int64_t rows, columns, depth; // columns are padded to whole vectors
  bool accumulate;              // add to C
};

// One step along the depth: multiplies a number of A by a vector of columns of
// B.
template <class B, class A>
struct Step {
  static Vec left(const A* a) {
    return splat(*a);
  }
  static Vec right(const B* b, int vector) {
    return load(b + vector * kWidth, Full{});
  }
  static Vec add(Vec sum, Vec left, Vec right) {
    return sum + left * right;
  }
};

#ifdef __AVX512BF16__
// The same for pairs, for bfloat16 instructions. A pair of B is in one column:
// a packed panel is (depth / 2, kPanel, 2).
template <>
struct Step<BFloat16, BFloat16> {
  static Vec left(const BFloat16* a) {
    int32_t pair;
    __builtin_memcpy(&pair, a, sizeof(pair));
    return as_float(splat_int(pair));
  }
  static Vec right(const BFloat16* b, int vector) {
    return load(reinterpret_cast<const float*>(b) + vector * kWidth, Full{});
  }
  static Vec add(Vec sum, Vec left, Vec right) {
    return _mm512_dpbf16_ps(
        sum,
        reinterpret_cast<__m512bh>(left),
        reinterpret_cast<__m512bh>(right));
  }
};
#endif

template <class B, class A, int rows, int vectors>
void gemm_tile(const Gemm<B, A>& g, const A* a, const B* b, float* c) {
  Vec sum[rows][vectors] = {};
  int64_t k = g.depth; // not 0
  do {
    Vec right[vectors];
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j)
      right[j] = Step<B, A>::right(b, j);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const Vec left = Step<B, A>::left(a + i * g.a_stride);
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j)
        sum[i][j] = Step<B, A>::add(sum[i][j], left, right[j]);
    }
    a += g.a_step;
    b += g.b_stride;
  } while (--k);
  // C is added at the end, so that no sum waits for it.
  if (g.accumulate)
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j)
        sum[i][j] += load(c + i * g.c_stride + j * kWidth);
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j)
      store(c + i * g.c_stride + j * kWidth, sum[i][j]);
}

template <class B, class A>
using GemmTile = void (*)(const Gemm<B, A>&, const A*, const B*, float*);

// The tile function by numbers of rows and vectors.
template <class B, class A, int rows>
GemmTile<B, A> gemm_tile_of(int64_t vectors) {
  constexpr GemmTile<B, A> tiles[]{
      gemm_tile<B, A, rows, 1>,
      gemm_tile<B, A, rows, 2>,
      gemm_tile < B,
      A,
      rows,
      kTileVectors < 3 ? kTileVectors : 3 >,
      gemm_tile<B, A, rows, kTileVectors>};
  return tiles[vectors - 1];
}
template <class B, class A>
GemmTile<B, A> gemm_tile_of(int64_t rows, int64_t vectors) {
  constexpr GemmTile<B, A> (*tiles[])(int64_t){
      gemm_tile_of<B, A, 1>,
      gemm_tile_of<B, A, 2>,
      gemm_tile_of<B, A, 3>,
      gemm_tile_of<B, A, 4>,
      gemm_tile_of<B, A, 5>,
      gemm_tile_of<B, A, kTileRows>};
  return tiles[rows - 1](vectors);
}

template <class B, class A>
void gemm(const Gemm<B, A>& g) {
  const B* b = g.b;
  for (int64_t j = 0; j < g.columns; j += kPanel, b += g.b_panel_stride) {
    const int64_t vectors = min(ceil_div(g.columns - j, kWidth), kTileVectors);
    for (int64_t i = 0; i < g.rows; i += kTileRows)
      gemm_tile_of<B, A>(min(g.rows - i, kTileRows), vectors)(
          g, g.a + i * g.a_stride, b, g.c + i * g.c_stride + j);
  }
}

// Rows of heads are often a page or more apart, too far for hardware prefetch.
template <class T>
void prefetch_row(const T* row, int64_t stride) {
  __builtin_prefetch(row + kWidth * stride);
}

// Packs keys (count, size) as kᵀ. The last key is repeated as padding; its
// extra scores are not read.
template <class T>
void pack_keys(
    const T* k,
    int64_t stride,
    int64_t count,
    int64_t size,
    float* packed) {
  for (int64_t key = 0; key < count; key += kWidth) {
    float* column = packed + key / kPanel * kPanel * size + key % kPanel;
    const int64_t last = min(count - key, kWidth) - 1;
    each_vector(size, [&](int64_t d, auto lanes) {
      Vec square[kWidth];
#pragma GCC unroll 16
      for (int64_t i = 0; i < kWidth; ++i) {
        const T* row = k + (key + min(i, last)) * stride + d;
        square[i] = load(row, lanes);
        prefetch_row(row, stride);
      }
      transpose(square);
      const int64_t rows = min(size - d, kWidth);
      for (int64_t i = 0; i < rows; ++i)
        store(column + (d + i) * kPanel, square[i]);
    });
  }
}

// Lane i of the result is the maximum of rows[i].
template <int count>
Vec max_each(const Vec (&rows)[count]) {
  if constexpr (count == 1) {
    return rows[0];
  } else {
    Vec half[count / 2];
#pragma GCC unroll 8
    for (int i = 0; i < count / 2; ++i)
      half[i] =
          max(interleave_low(rows[i], rows[i + count / 2]),
              interleave_high(rows[i], rows[i + count / 2]));
    return max_each(half);
  }
}

// eˣ for x ≤ 0, exactly 1 for 0, with a relative error of 1.5e-7 in addition to
// that of x log₂ e: about that of the surrounding products. AVX-512 has
// instructions that handle -∞, and one that takes the floor. The polynomial is
// a minimax fit of 2ʳ.
inline Vec exp_below(Vec x) {
  x = x * kLog2e;
#ifdef __AVX512F__
  const Vec r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF); // x - ⌊x⌋
  const Vec p = polynomial(
      r,
      1.8671301659196615e-3f,
      9.017029777169228e-3f,
      5.579991266131401e-2f,
      2.4016444385051727e-1f,
      6.931512951850891e-1f);
  // p · 2^⌊x⌋, or 0 for subnormals, as in exp2.
  const __mmask16 normal =
      _mm512_cmp_ps_mask(x, splat(-126.0f), _CMP_NLT_UQ); // NaN stays
  return _mm512_maskz_scalef_ps(normal, p * r + 1.0f, x);
#else
  return exp2(x);
#endif
}

template <class T>
void pack_values(
    const T* v,
    int64_t stride,
    int64_t count,
    int64_t size,
    float* packed,
    int64_t panel_stride) {
  for (int64_t j = 0; j < size; j += kPanel, packed += panel_stride)
    for (int64_t key = 0; key < count; ++key)
      each_vector(min(size - j, kPanel), [&](int64_t d, auto lanes) {
        const T* row = v + key * stride + j + d;
        store(packed + key * kPanel + d, load(row, lanes));
        prefetch_row(row, stride);
      });
}

template <class W>
void store_weights(float* p, Vec x, W lanes) {
  store(p, x, lanes);
}

// State of the calling thread that products of Operands require.
template <class Operand>
struct Tiles {};

// The place of a query.
struct Query {
  int64_t position, batch, head;
};

// Changes the scores of a query before their softmax.
class ScoreMask {
 public:
  explicit ScoreMask(const AttentionArgs& args) : args_(args) {}

  bool changes_scores() const {
    return args_.chosen || args_.mask || args_.keep;
  }

  // Changes the scores with `keys` keys from `key` on.
  void apply(const Query& query, float* scores, int64_t key, int64_t keys)
      const {
    if (args_.chosen)
      replace(query, scores, key, keys);
    if (args_.mask)
      with_type<float, BFloat16>(args_.mask_dtype, [&]<class M>(M*) {
        add_mask(query, scores, key, keys, static_cast<const M*>(args_.mask));
      });
    if (args_.keep)
      hide(query, scores, key, keys);
  }

 private:
  // The offset for the score of a query and a key.
  static int64_t offset(const Query& query, int64_t key, const MaskStrides& s) {
    return query.batch * s.batch + query.head * s.head +
           query.position * s.target + key * s.source;
  }

  template <class M>
  void add_mask(
      const Query& query,
      float* scores,
      int64_t key,
      int64_t keys,
      const M* mask) const {
    const MaskStrides& s = args_.mask_strides;
    mask += offset(query, key, s);
    const bool same = s.source == 0;
    const Vec first = splat(load_one(mask));
    each_vector(keys, [&](int64_t i, auto lanes) {
      const Vec addend = same ? first : load(mask + i, lanes);
      store(scores + i, load(scores + i, lanes) + addend, lanes);
    });
  }

  void replace(const Query& query, float* scores, int64_t key, int64_t keys)
      const {
    const MaskStrides& s = args_.chosen_strides;
    const uint8_t* chosen = args_.chosen + offset(query, key, s);
    const bool same = s.source == 0;
    const VecI first = splat_int(*chosen);
    const Vec fill = splat(args_.fill);
    each_vector(keys, [&](int64_t i, auto lanes) {
      const VecI bytes = same ? first : load_bits(chosen + i, lanes);
      const VecI filled = args_.fill_where ? bytes != 0 : bytes == 0;
      store(scores + i, filled ? fill : load(scores + i, lanes), lanes);
    });
  }

  void hide(const Query& query, float* scores, int64_t key, int64_t keys)
      const {
    const MaskStrides& s = args_.keep_strides;
    const uint8_t* keep = args_.keep + offset(query, key, s);
    const bool same = s.source == 0;
    const VecI first = splat_int(*keep);
    // -∞ is added, as in torch, so that a hidden NaN or ∞ gives NaN.
    each_vector(keys, [&](int64_t i, auto lanes) {
      const VecI kept = same ? first : load_bits(keep + i, lanes);
      const Vec addend = kept != 0 ? Vec{} : splat(-kInfinity);
      store(scores + i, load(scores + i, lanes) + addend, lanes);
    });
  }

  const AttentionArgs& args_;
};

} // namespace
} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
