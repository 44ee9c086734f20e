// Embedding tables are too large for caches, so rows are prefetched.
#include "embedding.h"

#include "vec.h"
#include "vecmath.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

// Rows to prefetch ahead of the current one.
constexpr int64_t kAhead = 8;

template <class T>
void prefetch_row(const T* row, int64_t dim) {
  const auto* bytes = reinterpret_cast<const char*>(row);
  const int64_t size = min(dim * int64_t{sizeof(T)}, 1024);
  for (int64_t i = 0; i < size; i += 64)
    __builtin_prefetch(bytes + i);
}

template <class T, class Id>
bool copy_rows(const EmbeddingBag& args, int64_t begin, int64_t end) {
  const T* table = static_cast<const T*>(args.table);
  const Id* ids = static_cast<const Id*>(args.ids);
  T* out = static_cast<T*>(args.out);
  const auto valid = [&](int64_t i) {
    return ids[i] >= 0 && ids[i] < args.rows;
  };
  bool ok = true;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t next = i + kAhead;
    if (next < end && valid(next))
      prefetch_row(table + ids[next] * args.row_stride, args.dim);
    if (valid(i))
      __builtin_memcpy(
          out + i * args.out_stride,
          table + ids[i] * args.row_stride,
          args.dim * sizeof(T));
    else
      ok = false;
  }
  return ok;
}

// The bags of a table from `begin` to `end`.
template <class T, class Id>
class Bags {
 public:
  explicit Bags(const EmbeddingBag& args)
      : args_(args),
        table_(static_cast<const T*>(args.table)),
        ids_(static_cast<const Id*>(args.ids)),
        weights_(static_cast<const T*>(args.weights)) {}

  bool run(int64_t begin, int64_t end) const {
    bool ok = true;
    int64_t asked = begin; // bags whose first rows were prefetched
    for (int64_t b = begin; b < end; ++b) {
      const Bag bag = find(b);
      if (!valid(bag)) {
        ok = false;
        continue;
      }
      // A large bag prefetches its own rows, a small one those of the next
      // bags.
      const int64_t ahead = max(kAhead / max(bag.size, 1), 1);
      for (asked = max(asked, b); asked < end && asked <= b + ahead; ++asked)
        prefetch(find(asked), 0, kAhead);
      reduce_bag(bag, b);
      describe(bag, b);
    }
    return ok;
  }

 private:
  struct Bag {
    const Id* ids;
    int64_t size;  // negative for invalid offsets
    int64_t first; // of its weights
  };

  Bag find(int64_t b) const {
    if (!args_.offsets)
      return {ids_ + b * args_.ids_stride, args_.bag_size, b * args_.bag_size};
    const int64_t begin = offset(b);
    const bool last = b + 1 == args_.bags;
    const int64_t end =
        last && !args_.last_offset ? args_.ids_count : offset(b + 1);
    if (begin < 0 || (b == 0 && begin > 0) || end < begin ||
        end > args_.ids_count || (last && end < args_.ids_count))
      return {ids_, -1, 0};
    return {ids_ + begin, end - begin, begin};
  }

  int64_t offset(int64_t b) const {
    return args_.offset_type == IdType::int64
               ? static_cast<const int64_t*>(args_.offsets)[b]
               : static_cast<const int32_t*>(args_.offsets)[b];
  }

  bool is_padding(Id id) const {
    return id == static_cast<Id>(args_.padding);
  }

  bool valid(Id id) const {
    return id >= 0 && id < args_.rows;
  }
  bool valid(const Bag& bag) const {
    for (int64_t i = 0; i < bag.size; ++i)
      if (!valid(bag.ids[i]))
        return false;
    return bag.size >= 0;
  }

  const T* row(Id id) const {
    return table_ + id * args_.row_stride;
  }

  Vec weight(int64_t i) const {
    return splat(weights_ ? load_one(weights_ + i * args_.weights_stride) : 1);
  }

  void prefetch(const Bag& bag, int64_t first, int64_t count) const {
    for (int64_t i = first; i < min(first + count, bag.size); ++i)
      if (valid(bag.ids[i]))
        prefetch_row(row(bag.ids[i]), args_.dim);
  }

  // Reduces as many columns at a time as registers hold; the first ones bring
  // the rows into the cache.
  void reduce_bag(const Bag& bag, int64_t b) const {
    T* out = static_cast<T*>(args_.out) + b * args_.out_stride;
    Id* max_ids = static_cast<Id*>(args_.max_ids);
    if (max_ids)
      max_ids += b * args_.dim;
    int64_t d = 0;
    for (; d + 8 * kWidth <= args_.dim; d += 8 * kWidth)
      reduce_columns<8>(bag, d, out, max_ids, Full{});
    for (; d + 4 * kWidth <= args_.dim; d += 4 * kWidth)
      reduce_columns<4>(bag, d, out, max_ids, Full{});
    for (; d + kWidth <= args_.dim; d += kWidth)
      reduce_columns<1>(bag, d, out, max_ids, Full{});
    if (d < args_.dim)
      reduce_columns<1>(bag, d, out, max_ids, Tail(args_.dim - d));
  }

  template <int vectors, class Lanes>
  void reduce_columns(
      const Bag& bag,
      int64_t d,
      T* out,
      Id* max_ids,
      Lanes lanes) const {
    Vec sum[vectors] = {};
    VecI place[vectors] = {}; // of the maximum, within the bag
    int64_t count = 0;
    for (int64_t i = 0; i < bag.size; ++i) {
      if (d == 0 && i + kAhead < bag.size)
        prefetch_row(row(bag.ids[i + kAhead]), args_.dim);
      if (is_padding(bag.ids[i]))
        continue;
      const T* from = row(bag.ids[i]) + d;
      const VecI here = splat_int(static_cast<int32_t>(i));
      if (args_.mode != Reduction::max) {
        const Vec factor = weight(bag.first + i);
#pragma GCC unroll 8
        for (int j = 0; j < vectors; ++j)
          sum[j] += load(from + j * kWidth, lanes) * factor;
      } else if (count == 0) {
#pragma GCC unroll 8
        for (int j = 0; j < vectors; ++j) {
          place[j] = here;
          sum[j] = load(from + j * kWidth, lanes);
        }
      } else {
#pragma GCC unroll 8
        for (int j = 0; j < vectors; ++j) {
          const Vec x = load(from + j * kWidth, lanes);
          place[j] = x > sum[j] ? here : place[j];
          sum[j] = max(x, sum[j]);
        }
      }
      ++count;
    }
    if (args_.mode == Reduction::mean && count > 1)
#pragma GCC unroll 8
      for (int j = 0; j < vectors; ++j)
        sum[j] /= static_cast<float>(count);
#pragma GCC unroll 8
    for (int j = 0; j < vectors; ++j)
      store(out + d + j * kWidth, sum[j], lanes);
    if (max_ids) {
      int32_t places[vectors * kWidth];
      __builtin_memcpy(places, place, sizeof(places));
      const int64_t columns = min(args_.dim - d, vectors * kWidth);
      for (int64_t j = 0; j < columns; ++j)
        max_ids[d + j] = count > 0 ? bag.ids[places[j]] : 0;
    }
  }

  void describe(const Bag& bag, int64_t b) const {
    if (Id* bag_of = static_cast<Id*>(args_.bag_of)) {
      bag_of += bag.ids - ids_;
      for (int64_t i = 0; i < bag.size; ++i)
        bag_of[i] = static_cast<Id>(b);
    }
    if (Id* sizes = static_cast<Id*>(args_.sizes)) {
      int64_t count = bag.size;
      for (int64_t i = 0; i < bag.size && args_.padding >= 0; ++i)
        count -= is_padding(bag.ids[i]);
      sizes[b] = static_cast<Id>(count);
    }
  }

  const EmbeddingBag& args_;
  const T* table_;
  const Id* ids_;
  const T* weights_;
};

template <class T, class Id>
bool run_bags(const EmbeddingBag& args, int64_t begin, int64_t end) {
  return args.mode == Reduction::none ? copy_rows<T, Id>(args, begin, end)
                                      : Bags<T, Id>(args).run(begin, end);
}

bool run_bags(const EmbeddingBag& args, int64_t begin, int64_t end) {
  return with_type<float, BFloat16>(args.dtype, [&]<class T>(T*) {
    return args.id_type == IdType::int64
               ? run_bags<T, int64_t>(args, begin, end)
               : run_bags<T, int32_t>(args, begin, end);
  });
}

// Pairwise products of features: the lower triangle of a symmetric matrix, in
// blocks of kWidth products, whose lanes are summed together.
constexpr int64_t kMaxFeatures = 64;
constexpr int64_t kMaxPairs = 4096;
constexpr int kBlockRows = kWidth / 4;
constexpr int kBlockCols = 4;

template <class T>
void products(
    const T* x,
    int64_t stride,
    int64_t features,
    int64_t dim,
    float* out) {
  for (int64_t row = 0; row < features; row += kBlockRows)
    for (int64_t col = 0; col < min(row + kBlockRows, features);
         col += kBlockCols) {
      const T* rows[kBlockRows];
      const T* cols[kBlockCols];
      // Beyond the last feature, that one is repeated.
      for (int i = 0; i < kBlockRows; ++i)
        rows[i] = x + min(row + i, features - 1) * stride;
      for (int j = 0; j < kBlockCols; ++j)
        cols[j] = x + min(col + j, features - 1) * stride;
      Vec sums[kWidth] = {};
      each_vector(dim, [&](int64_t d, auto lanes) {
        Vec right[kBlockCols];
#pragma GCC unroll 4
        for (int j = 0; j < kBlockCols; ++j)
          right[j] = load(cols[j] + d, lanes);
#pragma GCC unroll 4
        for (int i = 0; i < kBlockRows; ++i) {
          const Vec left = load(rows[i] + d, lanes);
#pragma GCC unroll 4
          for (int j = 0; j < kBlockCols; ++j)
            sums[i * kBlockCols + j] += left * right[j];
        }
      });
      float dots[kWidth];
      store(dots, sum_each(sums));
      for (int i = 0; i < kBlockRows; ++i)
        __builtin_memcpy(
            out + (row + i) * kMaxFeatures + col,
            dots + i * kBlockCols,
            kBlockCols * sizeof(float));
    }
}

template <class T>
float dot(const T* a, const T* b, int64_t size) {
  return sum_of(size, [&](int64_t i, auto lanes) {
    return load(a + i, lanes) * load(b + i, lanes);
  });
}

// Computes pairs one by one.
template <class T>
void dot_many(const PairwiseDotArgs& args, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; ++b) {
    const T* x = static_cast<const T*>(args.x) + b * args.batch_stride;
    T* out = static_cast<T*>(args.out) + b * args.out_stride;
    for (int64_t i = 0; i < args.pairs; ++i)
      store_one(
          out + i,
          dot(x + args.row[i] * args.feature_stride,
              x + args.col[i] * args.feature_stride,
              args.dim));
  }
}

template <class T>
void dot_pairs(const PairwiseDotArgs& args, int64_t begin, int64_t end) {
  float matrix[(kMaxFeatures + kBlockRows) * kMaxFeatures];
  float wanted[kMaxPairs];
  int32_t places[kMaxPairs];
  for (int64_t i = 0; i < args.pairs; ++i)
    places[i] = static_cast<int32_t>(
        max(args.row[i], args.col[i]) * kMaxFeatures +
        min(args.row[i], args.col[i]));
  for (int64_t b = begin; b < end; ++b) {
    const T* x = static_cast<const T*>(args.x) + b * args.batch_stride;
    T* out = static_cast<T*>(args.out) + b * args.out_stride;
    products(x, args.feature_stride, args.features, args.dim, matrix);
    for (int64_t i = 0; i < args.pairs; ++i)
      wanted[i] = matrix[places[i]];
    each_vector(args.pairs, [&](int64_t i, auto lanes) {
      store(out + i, load(wanted + i, lanes), lanes);
    });
  }
}

} // namespace

bool embedding_bags(const EmbeddingBagsArgs& args) {
  int64_t bags = 0, work = 0;
  for (int64_t t = 0; t < args.count; ++t) {
    const EmbeddingBag& table = args.tables[t];
    const int64_t ids =
        table.offsets ? table.ids_count : table.bags * table.bag_size;
    bags += table.bags;
    work += (table.bags + ids) * table.dim;
  }
  bool ok = true;
  // Threads split the bags of all tables as one range.
  const int64_t grain = ceil_div(8192 * bags, max(work, 1));
  parallel(bags, 1, max(grain, 1), [&](int64_t begin, int64_t end) {
    for (int64_t t = 0; t < args.count && end > 0; ++t) {
      const EmbeddingBag& table = args.tables[t];
      if (begin < table.bags &&
          !run_bags(table, max(begin, 0), min(end, table.bags)))
        __atomic_store_n(&ok, false, __ATOMIC_RELAXED);
      begin -= table.bags;
      end -= table.bags;
    }
  });
  return ok;
}

bool embedding_bag(const EmbeddingBag& args) {
  return embedding_bags({.tables = &args, .count = 1});
}

bool pairwise_dot(const PairwiseDotArgs& args) {
  for (int64_t i = 0; i < args.pairs; ++i)
    if (args.row[i] < 0 || args.row[i] >= args.features || args.col[i] < 0 ||
        args.col[i] >= args.features)
      return false;
  if (args.pairs == 0)
    return true;
  with_type<float, BFloat16>(args.dtype, [&]<class T>(T*) {
    const int64_t grain = ceil_div(131072, max(args.pairs * args.dim, 1));
    parallel(args.batch, 1, grain, [&](int64_t begin, int64_t end) {
      if (args.features <= kMaxFeatures && args.pairs <= kMaxPairs)
        dot_pairs<T>(args, begin, end);
      else
        dot_many<T>(args, begin, end);
    });
  });
  return true;
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
