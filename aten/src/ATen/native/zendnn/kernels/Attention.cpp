// Attention in tiles: for each block of queries and keys, the scores become
// weights and multiply the values while they are in the cache, with a running
// maximum and sum per query ("online softmax": Milakov and Gimelshein, 2018;
// Dao et al., FlashAttention, 2022).
#include "attention.h"

#ifdef __AVX512BF16__
#include "attention_pairs.h"
#else
#include "attention_tiles.h"
#endif

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

// Scores of one query without packed keys, for few queries. Each vector of
// scores is computed from kWidth keys at a time.
template <class T>
void score_keys(
    const float* q,
    const T* k,
    int64_t stride,
    int64_t count,
    int64_t size,
    float* scores) {
  for (int64_t key = 0; key < count; key += kWidth) {
    const int64_t last = min(count - key, kWidth) - 1; // repeated as padding
    Vec sums[kWidth] = {};
    each_vector(size, [&](int64_t d, auto lanes) {
      const Vec left = load(q + d, lanes);
#pragma GCC unroll 16
      for (int64_t i = 0; i < kWidth; ++i) {
        const T* row = k + (key + min(i, last)) * stride + d;
        sums[i] += left * load(row, lanes);
        prefetch_row(row, stride);
      }
    });
    store(scores + key, sum_each(sums));
  }
}

// How the work is split. A block of keys and of values takes 64 KiB, of queries
// and results twice that: together they stay in an L2 cache of 1 MiB.
struct Blocks {
  explicit Blocks(int64_t size)
      : padded_size(round_up(size, kPanel)),
        queries(min(max(32768 / padded_size, 60), 252)),
        keys(min(max(16384 / padded_size / 64 * 64, 64), 256)) {}
  int64_t padded_size;
  int64_t queries;
  int64_t keys;
};

// The granularity of products, by the type of operands: rows of a tile, steps
// of the depth, and the multiple to which the depth is padded. A strip contains
// the queries whose scores are computed together: few enough for the L1 cache,
// and enough to reuse a panel of keys.
template <class Operand>
struct Cut {
  static constexpr int64_t rows = kTileRows, step = 1, depth = 1;
  static constexpr int64_t strip = 4 * kTileRows;
};
#ifdef __AVX512BF16__
template <>
struct Cut<BFloat16> {
  static constexpr int64_t rows = kPairRows, step = 2, depth = kPairDepth;
  static constexpr int64_t strip = kPairStrip;
};
#endif
// Tiles may write rows of a strip beyond the last query.
constexpr int64_t kLongestStrip = 32;
static_assert(Cut<float>::strip <= kLongestStrip);
static_assert(Cut<BFloat16>::strip <= kLongestStrip);

// Offsets within the scratch of a thread.
struct Scratch {
  explicit Scratch(const Blocks& blocks)
      : q(0),
        keys(q + round_up(blocks.queries, kLongestStrip) * blocks.padded_size),
        values(keys + blocks.keys * blocks.padded_size),
        scores(values + blocks.keys * blocks.padded_size),
        results(scores + kLongestStrip * blocks.keys),
        sums(
            results +
            round_up(blocks.queries, kLongestStrip) * blocks.padded_size),
        maxima(sums + blocks.queries * kWidth),
        queries(maxima + round_up(blocks.queries, kWidth)),
        bytes(round_up(
            queries * 4 + blocks.queries * int64_t{sizeof(Query)},
            64)) {}
  // In floats.
  int64_t q, keys, values, scores, results, sums, maxima, queries;
  int64_t bytes;
};

// Attention of tensors of T, with products of floats or of pairs of bfloat16.
template <class T, class Operand>
class Attention {
  using Operands = Cut<Operand>;
  static constexpr bool kPairs = Operands::step == 2;

 public:
  Attention(const AttentionArgs& args, const Blocks& blocks, void* scratch)
      : args_(args), blocks_(blocks), mask_(args) {
    const Scratch places(blocks);
    auto* base = static_cast<float*>(scratch);
    q_ = reinterpret_cast<Operand*>(base + places.q);
    keys_ = reinterpret_cast<Operand*>(base + places.keys);
    values_ = reinterpret_cast<Operand*>(base + places.values);
    scores_ = base + places.scores;
    results_ = base + places.results;
    sums_ = base + places.sums;
    maxima_ = base + places.maxima;
    queries_ = reinterpret_cast<Query*>(base + places.queries);
  }

  // Computes `count` of the queries that share the keys of a head, from `first`
  // on, where queries are counted through all heads of the group.
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
        results_[i] = 0;
    // Packing pays off for many queries.
    const bool few = !kPairs && count <= kTileRows;
    const bool values_in_place = few && args_.size % kWidth == 0;
    for (int64_t key = 0; key < end; key += blocks_.keys) {
      const int64_t keys = min(end - key, blocks_.keys);
      const T* k_block = k + key * ks.time;
      const T* v_block = v + key * vs.time;
      if (!few)
        pack_keys(k_block, ks.time, keys, args_.size, keys_);
      const int64_t panel_stride = blocks_.keys * kPanel;
      if (!values_in_place)
        pack_values(v_block, vs.time, keys, args_.size, values_, panel_stride);
      for (int64_t i = 0; i < count; i += Operands::strip) {
        const int64_t rows = min(count - i, Operands::strip);
        const int64_t seen = visible(i, rows, key, keys);
        if (seen == 0)
          continue;
        score(i, rows, seen, few ? k_block : nullptr);
        weigh(i, rows, key, seen);
        if constexpr (!kPairs)
          if (values_in_place) {
            spend(i, rows, key, seen, v_block, vs.time, kPanel);
            continue;
          }
        const int64_t stride = Operands::step * kPanel;
        spend(i, rows, key, seen, values_, stride, panel_stride);
      }
    }
    finish(count);
  }

 private:
  // Reads the queries, and scales them if they are floats.
  void start(int64_t batch, int64_t kv_head, int64_t first, int64_t count) {
    const HeadStrides& s = args_.q_strides;
    const int64_t group = args_.heads / args_.kv_heads;
    const Vec scale = splat(args_.scale);
    int64_t head = kv_head * group + first / args_.target;
    int64_t position = first % args_.target;
    for (int64_t i = 0; i < count; ++i) {
      queries_[i] = {position, batch, head};
      maxima_[i] = -kInfinity;
      store(sums_ + i * kWidth, Vec{});
      const T* q = static_cast<const T*>(args_.q) + batch * s.batch +
                   head * s.head + position * s.time;
      Operand* row = q_ + i * blocks_.padded_size;
      if constexpr (kPairs)
        pack_query(q, s.time, args_.size, row);
      else
        each_vector(args_.size, [&](int64_t d, auto lanes) {
          store(row + d, load(q + d, lanes) * scale);
          prefetch_row(q + d, s.time);
        });
      if (++position == args_.target) {
        position = 0;
        ++head;
      }
    }
  }

  // The number of keys from `key` on that some query of the strip may see.
  int64_t visible(int64_t first, int64_t count, int64_t key, int64_t keys) {
    if (!args_.causal)
      return keys;
    int64_t last = 0;
    for (int64_t i = first; i < first + count; ++i)
      last = max(last, queries_[i].position);
    return max(min(last + 1 - key, keys), 0);
  }

  // The scores of `count` queries with a block of keys, which are packed, or in
  // place at `k` if that is not null.
  void score(int64_t first, int64_t count, int64_t keys, const T* k) {
    const int64_t size = blocks_.padded_size;
    if constexpr (!kPairs)
      if (k) {
        for (int64_t i = 0; i < count; ++i)
          score_keys(
              q_ + (first + i) * size,
              k,
              args_.k_strides.time,
              keys,
              args_.size,
              scores_ + i * blocks_.keys);
        return;
      }
    const int64_t depth = round_up(args_.size, Operands::depth);
    const Gemm<Operand, Operand> product{
        .a = q_ + first * size,
        .a_stride = size,
        .a_step = Operands::step,
        .b = keys_,
        .b_stride = Operands::step * kPanel,
        .b_panel_stride = depth * kPanel,
        .c = scores_,
        .c_stride = blocks_.keys,
        .rows = count,
        .columns = keys,
        .depth = depth / Operands::step,
        .accumulate = false};
    gemm(product);
  }

  // Adds the weighted values to the results.
  template <class V>
  void spend(
      int64_t first,
      int64_t count,
      int64_t key,
      int64_t keys,
      const V* v,
      int64_t stride,
      int64_t panel_stride) {
    const Gemm<V, Operand> product{
        .a = weights(0),
        .a_stride = weights(1) - weights(0),
        .a_step = Operands::step,
        .b = v,
        .b_stride = stride,
        .b_panel_stride = panel_stride,
        .c = results_ + first * blocks_.padded_size,
        .c_stride = blocks_.padded_size,
        .rows = count,
        .columns = args_.size,
        .depth = round_up(keys, Operands::depth) / Operands::step,
        .accumulate = key > 0};
    gemm(product);
  }

  // A query's weights overwrite its scores.
  Operand* weights(int64_t row) {
    return reinterpret_cast<Operand*>(scores_ + row * blocks_.keys);
  }

  // Turns scores into weights, and rescales earlier sums to the new maxima. The
  // maxima of a vector of queries are reduced together.
  void weigh(int64_t first, int64_t count, int64_t key, int64_t keys) {
    // The factor by which scores are not multiplied yet.
    const bool masked = mask_.changes_scores();
    const Vec scale = splat(kPairs && !masked ? args_.scale : 1);
    const auto score = [&](const float* scores, auto lanes) {
      const Vec x = load(scores, lanes);
      return kPairs ? rounded(x * scale) : x;
    };
    for (int64_t i = 0; i < count; i += kWidth) {
      const int64_t rows = min(count - i, kWidth);
      const Query* queries = queries_ + first + i;
      float* scores = scores_ + i * blocks_.keys;
      const auto seen = [&](int64_t row) {
        return args_.causal ? max(min(queries[row].position + 1 - key, keys), 0)
                            : keys;
      };
      Vec rows_maxima[kWidth];
      for (int64_t row = 0; row < rows; ++row) {
        float* row_scores = scores + row * blocks_.keys;
        if (masked) {
          if (kPairs)
            each_vector(seen(row), [&](int64_t j, auto lanes) {
              const Vec x = load(row_scores + j, lanes);
              store(row_scores + j, x * args_.scale, lanes);
            });
          mask_.apply(queries[row], row_scores, key, seen(row));
        }
        rows_maxima[row] = reduce(
            seen(row),
            splat(-kInfinity),
            [&](int64_t j, auto part) { return score(row_scores + j, part); },
            [](Vec a, Vec b) { return max(a, b); });
      }
      for (int64_t row = rows; row < kWidth; ++row)
        rows_maxima[row] = splat(-kInfinity);

      float* maxima = maxima_ + first + i;
      const Tail lanes(rows);
      const Vec before = load(maxima, lanes);
      const Vec now = max(max_each(rows_maxima), before);
      store(maxima, now, lanes);
      // If all scores so far are -∞, weights are 0, not NaN.
      const Vec bases = now == -kInfinity ? Vec{} : now;
      const Vec factors = exp_below(before - bases);

      for (int64_t row = 0; row < rows; ++row) {
        const float* row_scores = scores + row * blocks_.keys;
        Operand* row_weights = weights(i + row);
        float* sums = sums_ + (first + i + row) * kWidth;
        const Vec base = splat(bases[row]), factor = splat(factors[row]);
        const int64_t end = seen(row);
        // Weights can overwrite scores: a weight has at most the size of a
        // score, and reads are ahead of writes.
        const Vec sum = reduce(
            end,
            Vec{},
            [&](int64_t j, auto part) {
              const Vec weight = exp_below(score(row_scores + j, part) - base);
              store_weights(row_weights + j, weight, part);
              return weight;
            },
            [](Vec a, Vec b) { return a + b; });
        for (int64_t j = end; j < round_up(keys, Operands::depth); ++j)
          row_weights[j] = {};
        store(sums, load(sums) * factor + sum);
        if (key > 0 && factors[row] != 1) {
          float* results = results_ + (first + i + row) * blocks_.padded_size;
          for (int64_t d = 0; d < args_.size; d += kWidth)
            store(results + d, load(results + d) * factor);
        }
      }
    }
  }

  void finish(int64_t count) {
    const HeadStrides& s = args_.out_strides;
    const HeadStrides& ls = args_.log_sum_strides;
    const Vec unseen = splat(args_.unseen_is_nan ? __builtin_nanf("") : 0);
    for (int64_t first = 0; first < count; first += kWidth) {
      const int64_t rows = min(count - first, kWidth);
      Vec rows_sums[kWidth] = {};
      for (int64_t row = 0; row < rows; ++row)
        rows_sums[row] = load(sums_ + (first + row) * kWidth);
      const Vec sums = sum_each(rows_sums);
      const auto none = sums == Vec{};
      const Vec factors = none ? unseen : 1 / sums;
      const Vec log_sums =
          none ? Vec{} : load(maxima_ + first, Tail(rows)) + log(sums);
      for (int64_t row = 0; row < rows; ++row) {
        const Query& query = queries_[first + row];
        T* out = static_cast<T*>(args_.out) + query.batch * s.batch +
                 query.head * s.head + query.position * s.time;
        const float* results = results_ + (first + row) * blocks_.padded_size;
        const Vec factor = splat(factors[row]);
        each_vector(args_.size, [&](int64_t d, auto lanes) {
          store(out + d, load(results + d) * factor, lanes);
          prefetch_row(out + d, s.time);
        });
        if (args_.log_sums)
          args_.log_sums
              [query.batch * ls.batch + query.head * ls.head +
               query.position * ls.time] = log_sums[row];
      }
    }
  }

  const AttentionArgs& args_;
  const Blocks& blocks_;
  const ScoreMask mask_;
  Operand* q_;      // (queries, padded_size)
  Operand* keys_;   // panels of (size, kPanel)
  Operand* values_; // panels of (keys, kPanel)
  float* scores_;   // (kStrip, keys), then weights
  float* results_;  // (queries, padded_size), sums of weighted values
  float* sums_;     // (queries, kWidth), of weights per lane
  float* maxima_;   // (queries), of scores
  Query* queries_;
};

template <class T, class Operand>
void run(const AttentionArgs& args) {
  const Blocks blocks(args.size);
  const int64_t bytes = Scratch(blocks).bytes;
  const int64_t heads = args.batch * args.kv_heads;
  const int64_t queries = args.heads / args.kv_heads * args.target;
  const int64_t work = heads * queries * max(args.source, 1) * args.size;
  const int threads = static_cast<int>(
      min(threads_for(work, 16384), max(args.scratch_bytes / bytes, 1)));

  // Enough blocks of queries to balance the threads, but few enough that
  // packing keys and values stays cheap.
  int64_t parts = ceil_div(queries, blocks.queries);
  while (threads > 1 && heads * parts < 4 * threads &&
         queries >= 48 * (parts + 1))
    ++parts;
  const int64_t part = min(
      round_up(ceil_div(queries, parts), Cut<Operand>::rows), blocks.queries);
  parts = ceil_div(queries, part);

  int64_t next = 0;
  in_threads(threads, [&](int thread, int) {
    [[maybe_unused]] const Tiles<Operand> tiles;
    Attention<T, Operand> attention(
        args, blocks, static_cast<char*>(args.scratch) + thread * bytes);
    for (int64_t i = take(next); i < heads * parts; i = take(next)) {
      const int64_t head = i / parts, first = i % parts * part;
      attention.run(
          head / args.kv_heads,
          head % args.kv_heads,
          first,
          min(queries - first, part));
    }
  });
}

} // namespace

int64_t attention_scratch_bytes(const AttentionArgs& args) {
  return Scratch(Blocks(args.size)).bytes;
}

void attention(const AttentionArgs& args) {
  if (args.batch == 0 || args.heads == 0 || args.target == 0 || args.size == 0)
    return;
  with_type<float, BFloat16>(args.dtype, [&]<class T>(T*) {
#ifdef __AVX512BF16__
    if constexpr (kTypeOf<T> == DType::bfloat16) {
      if (args.heads / args.kv_heads * args.target > kTileRows)
        return run<T, T>(args);
    }
#endif
    run<T, float>(args);
  });
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
