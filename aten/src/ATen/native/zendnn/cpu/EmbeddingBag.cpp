// Embedding bags. torch's sums and means are as fast as ours. But torch
// computes maxima, skips padding and reads strided weights element by element
// on one thread.
#include <ATen/native/zendnn/cpu/Overrides.h>

#include <ATen/EmptyTensor.h>
#include <ATen/native/zendnn/cpu/Kernels.h>
#include <ATen/native/zendnn/kernels/embedding.h>
#include <ATen/ops/_embedding_bag_forward_only_native.h>
#include <ATen/ops/_embedding_bag_native.h>
#include <ATen/ops/zeros.h>

#include <limits>

namespace at::native::zendnn::cpu {
namespace {

using Bags = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// The operator's numbers of modes.
constexpr int64_t kSum = 0, kMax = 2;

bool is_list(const Tensor& t, ScalarType dtype) {
  return t.dim() == 1 && t.scalar_type() == dtype && t.layout() == kStrided &&
         t.is_contiguous();
}

int64_t value_at(const Tensor& list, int64_t index) {
  return list.scalar_type() == kLong ? list.const_data_ptr<int64_t>()[index]
                                     : list.const_data_ptr<int32_t>()[index];
}

// Any stride is accepted: weights are often the same for all ids.
bool takes_weights(
    const Tensor& weights,
    const Tensor& weight,
    const Tensor& indices,
    int64_t mode) {
  return mode == kSum && weights.dim() == 1 && is_dense(weights) &&
         weights.scalar_type() == weight.scalar_type() &&
         weights.numel() == indices.numel();
}

// Raises an error for ids without any bag, and for offsets that are not there:
// torch reduces the former into memory that is not its own, and sums what it
// finds at the latter. It raises its own for the first and the last offset.
void check_bags(
    const Tensor& indices,
    const Tensor& offsets,
    bool include_last_offset) {
  const auto ids = indices.numel(), count = offsets.numel();
  const auto closing = include_last_offset ? 1 : 0;
  if (count < closing || (count > 0 && (value_at(offsets, 0) != 0 ||
                                        value_at(offsets, count - 1) > ids))) {
    return;
  }
  TORCH_CHECK(
      ids == 0 || count > closing,
      "embedding_bag: offsets have no bag for ",
      ids,
      " ids; give the offset 0 of the first bag");
  const auto are_within = [&]<class T>(const T* values) {
    bool beyond = false; // without a branch, which would take most of the time
    for (int64_t i = 1; i + 1 < count; ++i) {
      beyond |= values[i] < 0 || values[i] > ids;
    }
    return !beyond;
  };
  TORCH_CHECK_INDEX(
      offsets.scalar_type() == kLong
          ? are_within(offsets.const_data_ptr<int64_t>())
          : are_within(offsets.const_data_ptr<int32_t>()),
      "index out of range in self");
}

// torch is as fast for sums without padding, without a closing offset before
// the last id, and with contiguous weights if any.
Reason why_not_bags(
    const Tensor& weight,
    const Tensor& indices,
    const Tensor& offsets,
    bool /*scale_grad_by_freq*/,
    int64_t mode,
    bool /*sparse*/,
    const std::optional<Tensor>& per_sample_weights,
    bool include_last_offset,
    int64_t padding_idx) {
  const auto dtype = weight.scalar_type(), id_type = indices.scalar_type();
  const auto count = indices.numel();
  const bool weighted = has(per_sample_weights);
  if (is_list(offsets, kLong) || is_list(offsets, kInt)) {
    check_bags(indices, offsets, include_last_offset);
  }
  if (mode < kSum || mode > kMax) {
    return "a mode of no known number";
  }
  if (mode != kMax && padding_idx < 0 &&
      !(weighted && per_sample_weights->stride(0) != 1)) {
    return "sums and means, which torch computes as fast";
  }
  if (weighted && !takes_weights(*per_sample_weights, weight, indices, mode)) {
    return why::kParameter;
  }
  if (find_dtype(dtype) == nullptr) {
    return why::kType;
  }
  if (weight.dim() != 2 || weight.layout() != kStrided || weight.numel() == 0 ||
      weight.stride(1) != 1) {
    return why::kLayout;
  }
  return (id_type != kLong && id_type != kInt) || !is_list(indices, id_type) ||
                 !is_list(offsets, id_type) || count == 0 ||
                 count > std::numeric_limits<int32_t>::max() ||
                 offsets.numel() <= (include_last_offset ? 1 : 0) ||
                 value_at(offsets, 0) != 0 ||
                 (include_last_offset &&
                  value_at(offsets, offsets.numel() - 1) != count)
             ? "ids or offsets of another type or layout, or that do not fit"
             : nullptr;
}

template <bool kForwardOnly>
constexpr auto stock =
    kForwardOnly ? at::native::_embedding_bag_forward_only_cpu
                 : at::native::_embedding_bag_cpu;

template <bool kForwardOnly>
Bags bags(
    const Tensor& weight,
    const Tensor& indices,
    const Tensor& offsets,
    bool scale_grad_by_freq,
    int64_t mode,
    bool sparse,
    const std::optional<Tensor>& per_sample_weights,
    bool include_last_offset,
    int64_t padding_idx) {
  const auto count = offsets.numel() - (include_last_offset ? 1 : 0);
  const auto dim = weight.size(1);
  const auto empty = [&](IntArrayRef sizes) {
    return at::detail::empty_cpu(sizes, offsets.options());
  };
  Tensor out = at::detail::empty_cpu({count, dim}, weight.options());
  const bool weighted = has(per_sample_weights);
  Tensor bag_of = empty({indices.numel()}), sizes, max_ids;
  if (mode == kSum) { // no backward pass reads these; torch returns zeros
    sizes =
        at::zeros({kForwardOnly ? offsets.numel() : count}, offsets.options());
  } else {
    sizes = empty({count});
  }
  if (mode == kMax) {
    max_ids = empty({count, dim});
  }
  const auto data = [](const Tensor& t) {
    return t.defined() && t.numel() > 0 ? t.mutable_data_ptr() : nullptr;
  };
  const auto id_type = offsets.scalar_type() == kLong ? kernels::IdType::int64
                                                      : kernels::IdType::int32;
  prepare_kernel(zendnn_reduction);
  const bool done = kernels::embedding_bag({
      .table = weight.const_data_ptr(),
      .rows = weight.size(0),
      .dim = dim,
      .row_stride = weight.stride(0),
      .ids = indices.const_data_ptr(),
      .offsets = offsets.const_data_ptr(),
      .offset_type = id_type,
      .last_offset = include_last_offset,
      .ids_count = indices.numel(),
      .id_type = id_type,
      .bags = count,
      .weights = weighted ? per_sample_weights->const_data_ptr() : nullptr,
      .weights_stride = weighted ? per_sample_weights->stride(0) : 0,
      .out = data(out),
      .out_stride = dim,
      .mode = static_cast<kernels::Reduction>(mode),
      .dtype = kernel_dtype(weight),
      .padding = padding_idx,
      .bag_of = data(bag_of),
      .sizes = mode == kSum ? nullptr : data(sizes),
      .max_ids = data(max_ids),
  });
  if (!done) {
    leave_to_torch("ids or offsets out of order");
    return stock<kForwardOnly>(
        weight,
        indices,
        offsets,
        scale_grad_by_freq,
        mode,
        sparse,
        per_sample_weights,
        include_last_offset,
        padding_idx);
  }
  return {out, bag_of, sizes, mode == kMax ? max_ids : sizes.clone()};
}

} // namespace

void list_embedding_bags(torch::Library& m) {
  add_rows<
      Row<"aten::_embedding_bag", // .08-.99, .07-1.0
          Needs::vectors,
          why_not_bags,
          bags<false>,
          stock<false>>,
      Row<"aten::_embedding_bag_forward_only",
          Needs::vectors,
          why_not_bags,
          bags<true>,
          stock<true>>>(m);
}

} // namespace at::native::zendnn::cpu
