// Embedding tables, and the operators of recommenders on their rows.
#pragma once

#include "types.h"

#include <ATen/native/zendnn/kernels/functions.h>

namespace at::native::zendnn::kernels {

enum class IdType { int64, int32 };

// Reduces the rows of each bag; an empty bag gives 0. With Reduction::none, a
// bag is one id, whose row is copied.
struct EmbeddingBag {
  const void* table = nullptr; // (rows, dim)
  int64_t rows = 0;
  int64_t dim = 0;
  int64_t row_stride = 0;
  // Without reduction: ids is (bags). Without offsets: ids is (bags, bag_size).
  // With offsets: bag b has the ids from offsets[b] to offsets[b + 1]; the last
  // bag ends at ids_count, which is the closing offset if there is one.
  const void* ids = nullptr;
  int64_t ids_stride = 0; // from one bag to the next
  int64_t bag_size = 0;
  const void* offsets = nullptr;
  IdType offset_type = IdType::int64;
  bool last_offset = false;
  int64_t ids_count = 0;
  IdType id_type = IdType::int64;
  int64_t bags = 0;
  // For sums: the factors of the ids' rows, of the table's type, in the order
  // of ids, bag after bag. Null for 1.
  const void* weights = nullptr;
  int64_t weights_stride = 1;
  void* out = nullptr; // (bags, dim)
  int64_t out_stride = 0;
  Reduction mode = Reduction::sum;
  DType dtype{};
  int64_t padding = -1; // the id of ignored rows; none if negative
  // Results for a backward pass, of the ids' type; each may be null.
  void* bag_of = nullptr;  // (ids_count) the bag of each id; with offsets
  void* sizes = nullptr;   // (bags) the number of rows, without padding
  void* max_ids = nullptr; // (bags, dim) the id of the maximum; 0 if none
};

// Several tables at once, in one parallel region.
struct EmbeddingBagsArgs {
  const EmbeddingBag* tables = nullptr;
  int64_t count = 0;
};

// False if an id is out of range, or if offsets do not begin with 0, fall, or
// end before the last id: such a bag is not written.
bool embedding_bag(const EmbeddingBag& args);
bool embedding_bags(const EmbeddingBagsArgs& args);

// out[b, i] = x[b, row[i]] · x[b, col[i]], the interaction of features.
struct PairwiseDotArgs {
  const void* x = nullptr; // (batch, features, dim), its last stride 1
  int64_t batch_stride = 0;
  int64_t feature_stride = 0;
  int64_t batch = 0;
  int64_t features =
      0; // up to 64, and up to 4096 pairs, are computed in blocks
  int64_t dim = 0;
  const int64_t* row = nullptr;
  const int64_t* col = nullptr;
  int64_t pairs = 0;
  void* out = nullptr; // (batch, pairs)
  int64_t out_stride = 0;
  DType dtype{};
};

// False if an index is outside [0, features); out is then untouched.
bool pairwise_dot(const PairwiseDotArgs& args);

} // namespace at::native::zendnn::kernels
