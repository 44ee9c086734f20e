// The gradient of attention in tiles: the weights of each block of queries and
// keys are recomputed from the scores and the forward pass's log-sum-exps, so
// that the matrix of weights is never in memory (Dao, FlashAttention-2, 2023,
// algorithm 2).
#include "attention.h"

#include "attention_tiles.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

// How the work is split: blocks of keys of 32 KiB, and at most as many queries,
// so that everything for two blocks stays in an L2 cache of 1 MiB.
struct Blocks {
  explicit Blocks(const AttentionArgs& args)
      : padded_size(round_up(args.size, kPanel)),
        keys(
            min(max(8192 / padded_size / kPanel * kPanel, kPanel),
                round_up(args.source, kPanel))) {
    const int64_t parts = ceil_div(args.target, 128);
    queries = round_up(ceil_div(args.target, parts), kTileRows);
  }
  int64_t padded_size;
  int64_t keys;
  int64_t queries;
};

// Offsets within the scratch of a thread, in floats.
struct Scratch {
  Scratch(const AttentionArgs& args, const Blocks& blocks)
      : q(0),
        grad_out(q + blocks.queries * blocks.padded_size),
        weights(grad_out + blocks.queries * blocks.padded_size),
        grad_scores(weights + blocks.queries * blocks.keys),
        keys(grad_scores + blocks.queries * blocks.keys),
        keys_across(keys + blocks.keys * blocks.padded_size),
        values_across(keys_across + blocks.keys * blocks.padded_size),
        grad_keys(values_across + blocks.keys * blocks.padded_size),
        grad_values(grad_keys + blocks.keys * blocks.padded_size),
        grad_q(grad_values + blocks.keys * blocks.padded_size),
        log_sums(grad_q + args.target * blocks.padded_size),
        means(log_sums + round_up(args.target, kWidth)),
        bytes(round_up((means + args.target) * 4, 64)) {}
  int64_t q, grad_out, weights, grad_scores, keys, keys_across, values_across,
      grad_keys, grad_values, grad_q, log_sums, means;
  int64_t bytes;
};

// A head of a tensor.
template <class T>
T* head_of(T* data, const HeadStrides& s, int64_t batch, int64_t head) {
  return data + batch * s.batch + head * s.head;
}

// Rows as floats, times a factor, `stride` of them apart.
template <class T>
void read_rows(
    const T* from,
    int64_t from_stride,
    int64_t count,
    int64_t size,
    float factor,
    float* to,
    int64_t stride) {
  const Vec scale = splat(factor);
  for (int64_t i = 0; i < count; ++i)
    each_vector(size, [&](int64_t d, auto lanes) {
      const T* row = from + i * from_stride + d;
      store(to + i * stride + d, load(row, lanes) * scale);
      prefetch_row(row, from_stride);
    });
}

template <class T>
void write_rows(
    const float* from,
    int64_t stride,
    int64_t count,
    int64_t size,
    float factor,
    T* to,
    int64_t to_stride) {
  const Vec scale = splat(factor);
  for (int64_t i = 0; i < count; ++i)
    each_vector(size, [&](int64_t d, auto lanes) {
      T* row = to + i * to_stride + d;
      store(row, load(from + i * stride + d) * scale, lanes);
      prefetch_row(row, to_stride);
    });
}

void clear(float* p, int64_t count) {
  for (int64_t i = 0; i < count; i += kWidth)
    store(p + i, Vec{});
}

template <class T>
class AttentionBackward {
 public:
  AttentionBackward(
      const AttentionBackwardArgs& args,
      const Blocks& blocks,
      void* scratch)
      : args_(args),
        forward_(args.forward),
        blocks_(blocks),
        mask_(args.forward) {
    const Scratch places(forward_, blocks);
    auto* base = static_cast<float*>(scratch);
    q_ = base + places.q;
    grad_out_ = base + places.grad_out;
    weights_ = base + places.weights;
    grad_scores_ = base + places.grad_scores;
    keys_ = base + places.keys;
    keys_across_ = base + places.keys_across;
    values_across_ = base + places.values_across;
    grad_keys_ = base + places.grad_keys;
    grad_values_ = base + places.grad_values;
    grad_q_ = base + places.grad_q;
    log_sums_ = base + places.log_sums;
    means_ = base + places.means;
  }

  void run(int64_t batch, int64_t head) {
    const AttentionArgs& f = forward_;
    const int64_t size = f.size, stride = blocks_.padded_size;
    const auto place = [&](const void* data, const HeadStrides& s) {
      return head_of(static_cast<const T*>(data), s, batch, head);
    };
    const auto out_place = [&](void* data, const HeadStrides& s) {
      return head_of(static_cast<T*>(data), s, batch, head);
    };
    const T* q = place(f.q, f.q_strides);
    const T* k = place(f.k, f.k_strides);
    const T* v = place(f.v, f.v_strides);
    const T* grad_out = place(args_.grad_out, args_.grad_out_strides);
    start(place(f.out, f.out_strides), grad_out, batch, head);

    for (int64_t key = 0; key < f.source; key += blocks_.keys) {
      const int64_t keys = min(f.source - key, blocks_.keys);
      const int64_t ks = f.k_strides.time, vs = f.v_strides.time;
      pack_keys(k + key * ks, ks, keys, size, keys_across_);
      pack_keys(v + key * vs, vs, keys, size, values_across_);
      read_rows(k + key * ks, ks, keys, size, 1, keys_, stride);
      clear(grad_keys_, keys * stride);
      clear(grad_values_, keys * stride);
      // A causal query sees no key beyond its position.
      const int64_t first =
          f.causal ? key / blocks_.queries * blocks_.queries : 0;
      for (int64_t i = first; i < f.target; i += blocks_.queries) {
        const int64_t count = min(f.target - i, blocks_.queries);
        const int64_t seen = f.causal ? min(i + count - key, keys) : keys;
        if (seen <= 0)
          continue;
        const int64_t qs = f.q_strides.time;
        const int64_t gs = args_.grad_out_strides.time;
        read_rows(q + i * qs, qs, count, size, f.scale, q_, stride);
        read_rows(grad_out + i * gs, gs, count, size, 1, grad_out_, stride);
        meet({i, batch, head}, count, key, seen);
      }
      write_rows(
          grad_keys_,
          stride,
          keys,
          size,
          1, // q_ is already scaled
          out_place(args_.grad_k, args_.grad_k_strides) +
              key * args_.grad_k_strides.time,
          args_.grad_k_strides.time);
      write_rows(
          grad_values_,
          stride,
          keys,
          size,
          1,
          out_place(args_.grad_v, args_.grad_v_strides) +
              key * args_.grad_v_strides.time,
          args_.grad_v_strides.time);
    }
    write_rows(
        grad_q_,
        stride,
        f.target,
        size,
        f.scale,
        out_place(args_.grad_q, args_.grad_q_strides),
        args_.grad_q_strides.time);
  }

 private:
  // The values per query: its log-sum-exp, and the mean of the gradients of its
  // weights, Σ weight · gradient, which is out · grad_out.
  void start(const T* out, const T* grad_out, int64_t batch, int64_t head) {
    const AttentionArgs& f = forward_;
    const HeadStrides& s = f.log_sum_strides;
    const float* log_sums = head_of(f.log_sums, s, batch, head);
    for (int64_t i = 0; i < f.target; ++i) {
      const T* row = out + i * f.out_strides.time;
      const T* grad_row = grad_out + i * args_.grad_out_strides.time;
      means_[i] = sum_of(f.size, [&](int64_t d, auto lanes) {
        return load(row + d, lanes) * load(grad_row + d, lanes);
      });
      log_sums_[i] = log_sums[i * s.time];
    }
    clear(grad_q_, f.target * blocks_.padded_size);
  }

  // The gradients from `count` queries, from `query` on, and `keys` keys.
  void meet(Query query, int64_t count, int64_t key, int64_t keys) {
    const int64_t size = blocks_.padded_size, columns = forward_.size;
    Gemm<float> scores{
        .a = q_,
        .a_stride = size,
        .a_step = 1,
        .b = keys_across_,
        .b_stride = kPanel,
        .b_panel_stride = columns * kPanel,
        .c = weights_,
        .c_stride = blocks_.keys,
        .rows = count,
        .columns = keys,
        .depth = columns,
        .accumulate = false};
    gemm(scores);
    scores.a = grad_out_;
    scores.b = values_across_;
    scores.c = grad_scores_;
    gemm(scores);

    const int64_t first = query.position;
    for (int64_t i = 0; i < count; ++i, ++query.position)
      weigh(
          query,
          key,
          keys,
          weights_ + i * blocks_.keys,
          grad_scores_ + i * blocks_.keys);

    // Keys accumulate over queries, and queries over keys.
    Gemm<float> collect{
        .a = weights_,
        .a_stride = 1,
        .a_step = blocks_.keys,
        .b = grad_out_,
        .b_stride = size,
        .b_panel_stride = kPanel,
        .c = grad_values_,
        .c_stride = size,
        .rows = keys,
        .columns = columns,
        .depth = count,
        .accumulate = true};
    gemm(collect);
    collect.a = grad_scores_;
    collect.b = q_;
    collect.c = grad_keys_;
    gemm(collect);
    collect.a_stride = blocks_.keys;
    collect.a_step = 1;
    collect.b = keys_;
    collect.c = grad_q_ + first * size;
    collect.rows = count;
    collect.depth = keys;
    gemm(collect);
  }

  // Turns a row of scores into weights, and a row of the weights' gradients
  // into the scores'.
  void weigh(
      const Query& query,
      int64_t key,
      int64_t keys,
      float* weights,
      float* grads) {
    const int64_t seen =
        forward_.causal ? max(min(query.position + 1 - key, keys), 0) : keys;
    mask_.apply(query, weights, key, seen);
    const Vec log_sum = splat(log_sums_[query.position]);
    const Vec mean = splat(means_[query.position]);
    each_vector(seen, [&](int64_t j, auto lanes) {
      const Vec weight =
          exp_below(min(Vec{}, load(weights + j, lanes) - log_sum));
      store(weights + j, weight, lanes);
      store(grads + j, weight * (load(grads + j, lanes) - mean), lanes);
    });
    for (int64_t j = seen; j < keys; ++j)
      weights[j] = grads[j] = 0;
  }

  const AttentionBackwardArgs& args_;
  const AttentionArgs& forward_;
  const Blocks& blocks_;
  const ScoreMask mask_;
  float* q_;             // (queries, padded_size)
  float* grad_out_;      // (queries, padded_size)
  float* weights_;       // (queries, keys): scores, then weights
  float* grad_scores_;   // (queries, keys)
  float* keys_;          // (keys, padded_size)
  float* keys_across_;   // panels of (size, kPanel)
  float* values_across_; // panels of (size, kPanel)
  float* grad_keys_;     // (keys, padded_size)
  float* grad_values_;   // (keys, padded_size)
  float* grad_q_;        // (target, padded_size)
  float* log_sums_;      // (target)
  float* means_;         // (target)
};

template <class T>
void run(const AttentionBackwardArgs& args) {
  const AttentionArgs& f = args.forward;
  const Blocks blocks(f);
  const int64_t bytes = Scratch(f, blocks).bytes;
  const int64_t heads = f.batch * f.heads;
  const int64_t work = heads * f.target * f.source * f.size;
  const int threads = static_cast<int>(
      min(threads_for(work, 16384), max(f.scratch_bytes / bytes, 1)));
  int64_t next = 0;
  in_threads(threads, [&](int thread, int) {
    AttentionBackward<T> backward(
        args, blocks, static_cast<char*>(f.scratch) + thread * bytes);
    for (int64_t i = take(next); i < heads; i = take(next))
      backward.run(i / f.heads, i % f.heads);
  });
}

} // namespace

int64_t attention_backward_scratch_bytes(const AttentionBackwardArgs& args) {
  return Scratch(args.forward, Blocks(args.forward)).bytes;
}

void attention_backward(const AttentionBackwardArgs& args) {
  with_type<float, BFloat16>(
      args.forward.dtype, [&]<class T>(T*) { run<T>(args); });
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
