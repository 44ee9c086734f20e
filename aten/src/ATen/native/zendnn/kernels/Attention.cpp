// Attention in tiles: for blocks of queries and of keys, scores are computed,
// turned into weights and spent on the values while they are in the cache, with
// the running maximum and sum of each query ("online softmax": Milakov and
// Gimelshein, 2018; Dao et al., FlashAttention, 2022).
#include "attention.h"

#include "vec.h"
#include "vecmath.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

constexpr float kLargest = __FLT_MAX__;

// C (rows, columns) = A (rows, depth) · B (depth, columns). A register tile of
// C is kTileRows × kTileVectors vectors. B is cut into panels as wide as the
// tile; packed, they lie one after the other, each contiguous (depth, kPanel).
constexpr int kTileRows = 6;
constexpr int kTileVectors = kWidth == 16 ? 4 : 2;
constexpr int64_t kPanel = kTileVectors * kWidth;

struct Gemm {
  const float* a;
  int64_t a_stride;
  const float* b;
  int64_t b_stride, b_panel_stride;
  float* c;
  int64_t c_stride;
  int64_t rows, columns, depth; // columns round up to whole vectors
  bool accumulate;              // to what C holds
};

template <int rows, int vectors>
void gemm_tile(const Gemm& g, const float* a, const float* b, float* c) {
  Vec sum[rows][vectors] = {};
  if (g.accumulate)
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j)
        sum[i][j] = load(c + i * g.c_stride + j * kWidth);
  for (int64_t k = 0; k < g.depth; ++k, ++a, b += g.b_stride) {
    Vec right[vectors];
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j)
      right[j] = load(b + j * kWidth);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const Vec left = splat(a[i * g.a_stride]);
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j)
        sum[i][j] += left * right[j];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j)
      store(c + i * g.c_stride + j * kWidth, sum[i][j]);
}

using GemmTile = void (*)(const Gemm&, const float*, const float*, float*);

// The tile of a number of rows and vectors, found at index [rows - 1]
// [vectors - 1].
template <int rows>
constexpr GemmTile gemm_tile_of(int vectors) {
  switch (vectors) {
    case 1:
      return gemm_tile<rows, 1>;
    case 2:
      return gemm_tile<rows, 2>;
    case 3:
      return gemm_tile<rows, 3>;
    default:
      return gemm_tile<rows, kTileVectors>;
  }
}
constexpr GemmTile gemm_tile_of(int64_t rows, int64_t vectors) {
  switch (rows) {
    case 1:
      return gemm_tile_of<1>(vectors);
    case 2:
      return gemm_tile_of<2>(vectors);
    case 3:
      return gemm_tile_of<3>(vectors);
    case 4:
      return gemm_tile_of<4>(vectors);
    case 5:
      return gemm_tile_of<5>(vectors);
    default:
      return gemm_tile_of<kTileRows>(vectors);
  }
}

void gemm(const Gemm& g) {
  const float* b = g.b;
  for (int64_t j = 0; j < g.columns; j += kPanel, b += g.b_panel_stride) {
    const int64_t vectors = min(ceil_div(g.columns - j, kWidth), kTileVectors);
    for (int64_t i = 0; i < g.rows; i += kTileRows)
      gemm_tile_of(min(g.rows - i, kTileRows), vectors)(
          g, g.a + i * g.a_stride, b, g.c + i * g.c_stride + j);
  }
}

// Packs keys (count, size) as kᵀ; the last one again fills up a vector, and
// makes scores that nobody reads.
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
      for (int64_t i = 0; i < kWidth; ++i)
        square[i] = load(k + (key + min(i, last)) * stride + d, lanes);
      transpose(square);
      const int64_t rows = min(size - d, kWidth);
      for (int64_t i = 0; i < rows; ++i)
        store(column + (d + i) * kPanel, square[i]);
    });
  }
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
        store(packed + key * kPanel + d, load(v + key * stride + j + d, lanes));
      });
}

// Scores of one query, for so few queries that packing keys would cost more
// than using them. Each vector of scores is made of kWidth keys at a time.
template <class T>
void score_keys(
    const float* q,
    const T* k,
    int64_t stride,
    int64_t count,
    int64_t size,
    float* scores) {
  for (int64_t key = 0; key < count; key += kWidth) {
    const int64_t last = min(count - key, kWidth) - 1; // stands in for others
    Vec sums[kWidth] = {};
    each_vector(size, [&](int64_t d, auto lanes) {
      const Vec left = load(q + d, lanes);
#pragma GCC unroll 16
      for (int64_t i = 0; i < kWidth; ++i)
        sums[i] += left * load(k + (key + min(i, last)) * stride + d, lanes);
    });
    store(scores + key, sum_each(sums));
  }
}

// A query that is being worked on.
struct Query {
  float max, sum; // of the scores, in units of log 2, and of the weights
  int64_t position, batch, head;
};

// How the work is cut. A block of queries, of keys and of values takes 64 KiB
// each: together they stay in the second-level cache.
struct Blocks {
  explicit Blocks(int64_t size)
      : padded_size(round_up(size, kPanel)),
        queries(min(max(16384 / padded_size, 60), 252)),
        keys(min(max(16384 / padded_size / 64 * 64, 64), 256)) {}
  int64_t padded_size;
  int64_t queries;
  int64_t keys;
};

// Queries whose scores are computed together: 12 KiB at most, so that they stay
// in the first-level cache together with a panel of keys or values.
constexpr int64_t kStrip = 2 * kTileRows;

// Places within the scratch of a thread.
struct Scratch {
  explicit Scratch(const Blocks& blocks)
      : q(0),
        keys(q + blocks.queries * blocks.padded_size),
        values(keys + blocks.keys * blocks.padded_size),
        scores(values + blocks.keys * blocks.padded_size),
        sums(scores + kStrip * blocks.keys),
        queries(sums + blocks.queries * blocks.padded_size),
        bytes(round_up(
            queries * 4 + blocks.queries * int64_t{sizeof(Query)},
            64)) {}
  int64_t q, keys, values, scores, sums, queries; // in floats
  int64_t bytes;
};

template <class T>
class Attention {
 public:
  Attention(const AttentionArgs& args, const Blocks& blocks, void* scratch)
      : args_(args), blocks_(blocks) {
    const Scratch places(blocks);
    auto* base = static_cast<float*>(scratch);
    q_ = base + places.q;
    keys_ = base + places.keys;
    values_ = base + places.values;
    scores_ = base + places.scores;
    sums_ = base + places.sums;
    queries_ = reinterpret_cast<Query*>(base + places.queries);
  }

  // Works on `count` of the queries that share the keys of a head; the first of
  // them is `first` when they are counted through all heads of the group.
  void run(int64_t batch, int64_t kv_head, int64_t first, int64_t count) {
    const HeadStrides& ks = args_.k_strides;
    const HeadStrides& vs = args_.v_strides;
    const T* k =
        static_cast<const T*>(args_.k) + batch * ks.batch + kv_head * ks.head;
    const T* v =
        static_cast<const T*>(args_.v) + batch * vs.batch + kv_head * vs.head;
    start(batch, kv_head, first, count);
    const int64_t end = visible(0, count, 0, args_.source);
    if (end == 0)
      for (int64_t i = 0; i < count * blocks_.padded_size; ++i)
        sums_[i] = 0;
    const bool few = count <= kTileRows;
    for (int64_t key = 0; key < end; key += blocks_.keys) {
      const int64_t keys = min(end - key, blocks_.keys);
      const T* k_block = k + key * ks.time;
      const T* v_block = v + key * vs.time;
      if (!few)
        pack_keys(k_block, ks.time, keys, args_.size, keys_);
      Gemm values = place_values(v_block, keys, few);
      for (int64_t i = 0; i < count; i += kStrip)
        strip(
            i,
            min(count - i, kStrip),
            key,
            keys,
            few ? k_block : nullptr,
            values);
    }
    finish(count);
  }

 private:
  // Reads the queries, scaled so that the weights are powers of 2.
  void start(int64_t batch, int64_t kv_head, int64_t first, int64_t count) {
    const HeadStrides& s = args_.q_strides;
    const int64_t group = args_.heads / args_.kv_heads;
    const Vec scale = splat(args_.scale * kLog2e);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t head = kv_head * group + (first + i) / args_.target;
      const int64_t position = (first + i) % args_.target;
      queries_[i] = {-kInfinity, 0, position, batch, head};
      const T* q = static_cast<const T*>(args_.q) + batch * s.batch +
                   head * s.head + position * s.time;
      each_vector(args_.size, [&](int64_t d, auto lanes) {
        store(q_ + i * blocks_.padded_size + d, load(q + d, lanes) * scale);
      });
    }
  }

  // How many of the keys from `key` on some query of the strip may see.
  int64_t visible(int64_t first, int64_t count, int64_t key, int64_t keys) {
    if (!args_.causal)
      return keys;
    int64_t last = 0;
    for (int64_t i = first; i < first + count; ++i)
      last = max(last, queries_[i].position);
    return max(min(last + 1 - key, keys), 0);
  }

  // The right-hand side of the product of weights and values: packed, or where
  // they are if they need neither conversion nor padding.
  Gemm place_values(const T* v, int64_t keys, bool few) {
    const int64_t stride = args_.v_strides.time;
    Gemm product{};
    if constexpr (sizeof(T) == sizeof(float))
      if (few && args_.size % kWidth == 0) {
        product.b = v;
        product.b_stride = stride;
        product.b_panel_stride = kPanel;
        return product;
      }
    product.b = values_;
    product.b_stride = kPanel;
    product.b_panel_stride = blocks_.keys * kPanel;
    pack_values(v, stride, keys, args_.size, values_, product.b_panel_stride);
    return product;
  }

  // Lets `count` queries see the keys of a block, which are packed unless `k`
  // tells where they are.
  void strip(
      int64_t first,
      int64_t count,
      int64_t key,
      int64_t keys,
      const T* k,
      Gemm values) {
    keys = visible(first, count, key, keys);
    if (keys == 0)
      return;
    const int64_t size = blocks_.padded_size;
    if (k) {
      for (int64_t i = 0; i < count; ++i)
        score_keys(
            q_ + (first + i) * size,
            k,
            args_.k_strides.time,
            keys,
            args_.size,
            scores_ + i * blocks_.keys);
    } else {
      gemm(
          {.a = q_ + first * size,
           .a_stride = size,
           .b = keys_,
           .b_stride = kPanel,
           .b_panel_stride = args_.size * kPanel,
           .c = scores_,
           .c_stride = blocks_.keys,
           .rows = count,
           .columns = keys,
           .depth = args_.size,
           .accumulate = false});
    }
    for (int64_t i = 0; i < count; ++i)
      weigh(
          queries_[first + i],
          scores_ + i * blocks_.keys,
          key,
          keys,
          sums_ + (first + i) * size);
    values.a = scores_;
    values.a_stride = blocks_.keys;
    values.c = sums_ + first * size;
    values.c_stride = size;
    values.rows = count;
    values.columns = args_.size;
    values.depth = keys;
    values.accumulate = key > 0;
    gemm(values);
  }

  // Turns a row of scores into weights, and scales what was summed up before to
  // the new maximum.
  void
  weigh(Query& query, float* scores, int64_t key, int64_t keys, float* sums) {
    const int64_t seen =
        args_.causal ? max(min(query.position + 1 - key, keys), 0) : keys;
    if (args_.chosen)
      replace(query, scores, key, seen);
    if (args_.mask && args_.mask_dtype == DType::float32)
      add_mask(query, scores, key, seen, static_cast<const float*>(args_.mask));
    else if (args_.mask)
      add_mask(
          query, scores, key, seen, static_cast<const BFloat16*>(args_.mask));
    if (args_.keep)
      hide(query, scores, key, seen);

    const float before = query.max;
    const float here = max_of(
        seen, [&](int64_t i, auto lanes) { return load(scores + i, lanes); });
    query.max = here > before ? here : before;
    // Where all is -∞ so far, weights shall be 0, not NaN.
    const Vec base = splat(query.max == -kInfinity ? 0 : query.max);
    const float sum = sum_of(seen, [&](int64_t i, auto lanes) {
      const Vec weight = exp2(load(scores + i, lanes) - base);
      store(scores + i, weight, lanes);
      return weight;
    });
    for (int64_t i = seen; i < keys; ++i)
      scores[i] = 0;

    if (key > 0 && query.max != before) {
      const Vec factor = exp2(splat(before) - base);
      query.sum *= factor[0];
      for (int64_t d = 0; d < args_.size; d += kWidth)
        store(sums + d, load(sums + d) * factor);
    }
    query.sum += sum;
  }

  // Of what belongs to the score of a query and a key.
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
      const M* mask) {
    const MaskStrides& s = args_.mask_strides;
    mask += offset(query, key, s);
    const bool same = s.source == 0;
    const Vec first = splat(load_one(mask)), fill = fill_score();
    each_vector(keys, [&](int64_t i, auto lanes) {
      const Vec addend = same ? first : load(mask + i, lanes);
      const Vec score = load(scores + i, lanes);
      const Vec sum = in_range(addend, addend * kLog2e + score);
      // What was replaced can leave the range of numbers now.
      const VecI lost =
          args_.chosen
              ? (score == fill) & (addend + args_.fill == splat(-kInfinity))
              : VecI{};
      store(scores + i, lost ? splat(-kInfinity) : sum, lanes);
    });
  }

  // Scores are multiples of log2 e: the lowest finite number leaves their
  // range, and must not hide a key as -∞ does.
  static Vec in_range(Vec number, Vec score) {
    return number == -kInfinity ? number : max(splat(-kLargest), score);
  }

  Vec fill_score() const {
    const Vec fill = splat(args_.fill);
    return in_range(fill, fill * kLog2e);
  }

  void replace(const Query& query, float* scores, int64_t key, int64_t keys) {
    const MaskStrides& s = args_.chosen_strides;
    const uint8_t* chosen = args_.chosen + offset(query, key, s);
    const bool same = s.source == 0;
    const VecI first = splat_int(*chosen);
    const Vec fill = fill_score();
    each_vector(keys, [&](int64_t i, auto lanes) {
      const VecI bytes = same ? first : load_bits(chosen + i, lanes);
      const VecI filled = args_.fill_where ? bytes != 0 : bytes == 0;
      store(scores + i, filled ? fill : load(scores + i, lanes), lanes);
    });
  }

  void hide(const Query& query, float* scores, int64_t key, int64_t keys) {
    const MaskStrides& s = args_.keep_strides;
    const uint8_t* keep = args_.keep + offset(query, key, s);
    const bool same = s.source == 0;
    const VecI first = splat_int(*keep);
    each_vector(keys, [&](int64_t i, auto lanes) {
      const VecI kept = same ? first : load_bits(keep + i, lanes);
      store(
          scores + i,
          kept != 0 ? load(scores + i, lanes) : splat(-kInfinity),
          lanes);
    });
  }

  void finish(int64_t count) {
    const HeadStrides& s = args_.out_strides;
    const float unseen = args_.unseen_is_nan ? __builtin_nanf("") : 0;
    for (int64_t i = 0; i < count; ++i) {
      const Query& query = queries_[i];
      T* out = static_cast<T*>(args_.out) + query.batch * s.batch +
               query.head * s.head + query.position * s.time;
      const float* sums = sums_ + i * blocks_.padded_size;
      const Vec factor = splat(query.sum == 0 ? unseen : 1 / query.sum);
      each_vector(args_.size, [&](int64_t d, auto lanes) {
        store(out + d, load(sums + d) * factor, lanes);
      });
    }
    if (args_.log_sums)
      store_log_sums(count);
  }

  void store_log_sums(int64_t count) {
    constexpr float kLog2 = 1 / kLog2e;
    const HeadStrides& s = args_.log_sum_strides;
    for (int64_t i = 0; i < count; i += kWidth) {
      const int64_t lanes = min(count - i, kWidth);
      Vec sums = splat(1), bases{};
      for (int64_t lane = 0; lane < lanes; ++lane) {
        const Query& query = queries_[i + lane];
        if (query.sum != 0) {
          sums[lane] = query.sum;
          bases[lane] = query.max;
        }
      }
      const Vec results = bases * kLog2 + log(sums);
      for (int64_t lane = 0; lane < lanes; ++lane) {
        const Query& query = queries_[i + lane];
        args_.log_sums
            [query.batch * s.batch + query.head * s.head +
             query.position * s.time] = results[lane];
      }
    }
  }

  const AttentionArgs& args_;
  const Blocks& blocks_;
  float* q_;      // (queries, padded_size)
  float* keys_;   // panels of (size, kPanel)
  float* values_; // panels of (keys, kPanel)
  float* scores_; // (kStrip, keys), then weights
  float* sums_;   // (queries, padded_size), of weighted values
  Query* queries_;
};

template <class T>
void run(const AttentionArgs& args) {
  const Blocks blocks(args.size);
  const int64_t bytes = Scratch(blocks).bytes;
  const int64_t heads = args.batch * args.kv_heads;
  const int64_t queries = args.heads / args.kv_heads * args.target;
  const int64_t work = heads * queries * max(args.source, 1) * args.size;
  const int threads = static_cast<int>(
      min(threads_for(work, 16384), max(args.scratch_bytes / bytes, 1)));

  // Enough blocks of queries to keep all threads busy to the end, but few
  // enough that packing keys and values stays cheap beside using them.
  int64_t parts = ceil_div(queries, blocks.queries);
  while (threads > 1 && heads * parts < 4 * threads &&
         queries >= 48 * (parts + 1))
    ++parts;
  const int64_t part =
      min(round_up(ceil_div(queries, parts), kTileRows), blocks.queries);
  parts = ceil_div(queries, part);

#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    Attention<T> attention(
        args,
        blocks,
        static_cast<char*>(args.scratch) + omp_get_thread_num() * bytes);
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < heads * parts; ++i) {
      const int64_t head = i / parts, first = i % parts * part;
      attention.run(
          head / args.kv_heads,
          head % args.kv_heads,
          first,
          min(queries - first, part));
    }
  }
}

} // namespace

int64_t attention_scratch_bytes(const AttentionArgs& args) {
  return Scratch(Blocks(args.size)).bytes;
}

void attention(const AttentionArgs& args) {
  if (args.batch == 0 || args.heads == 0 || args.target == 0 || args.size == 0)
    return;
  with_type(args.dtype, [&]<class T>(T*) { run<T>(args); });
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
