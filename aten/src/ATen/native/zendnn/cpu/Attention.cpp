// The fused attention of F.scaled_dot_product_attention, on our own kernel.
#include <ATen/native/zendnn/cpu/Overrides.h>

#include <ATen/CPUFunctions.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/native/zendnn/Operands.h>
#include <ATen/native/zendnn/cpu/Heuristics.h>
#include <ATen/native/zendnn/cpu/Kernels.h>
#include <ATen/native/zendnn/kernels/attention.h>
#include <ATen/ops/contiguous.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/transpose.h>

#include <algorithm>
#include <cmath>

namespace at::native::zendnn::cpu {
namespace {

using kernels::HeadStrides;

// Whether this is a tensor (batch, heads, time, size) that the kernel accepts.
bool takes_heads(const Tensor& t, ScalarType dtype) {
  return t.dim() == 4 && t.scalar_type() == dtype && is_dense(t) &&
         (t.stride(3) == 1 || t.size(3) == 1);
}

// Whether it has two or four dimensions, each 1 or the scores'.
bool takes_mask(const Tensor& mask, IntArrayRef scores, ScalarType dtype) {
  const auto dim = mask.dim();
  if ((dim != 2 && dim != 4) || !is_dense(mask) ||
      (mask.scalar_type() != kFloat && mask.scalar_type() != dtype)) {
    return false;
  }
  for (int64_t i = 0; i < dim; ++i) {
    if (mask.size(i) != 1 && mask.size(i) != scores[4 - dim + i]) {
      return false;
    }
  }
  return mask.size(dim - 1) == 1 || mask.stride(dim - 1) == 0 ||
         mask.stride(dim - 1) == 1;
}

Reason why_not_attend(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    double dropout_p,
    bool /*is_causal*/,
    const std::optional<Tensor>& mask,
    std::optional<double> /*scale*/) {
  const auto dtype = query.scalar_type();
  if (dropout_p != 0) {
    return "dropout";
  }
  if (find_dtype(dtype) == nullptr) {
    return why::kType;
  }
  if (!takes_heads(query, dtype) || !takes_heads(key, dtype) ||
      !takes_heads(value, dtype)) {
    return "heads that differ in type, or whose numbers do not lie side by "
           "side";
  }
  const auto q = query.sizes(), k = key.sizes();
  if (query.numel() == 0 || key.numel() == 0) {
    return why::kEmpty;
  }
  if (const auto reason = why_leave_attention(query)) {
    return reason;
  }
  if (k != value.sizes() || q[0] != k[0] || q[1] % k[1] != 0 || q[3] != k[3]) {
    return why::kSizes;
  }
  return has(mask) && !takes_mask(*mask, {q[0], q[1], q[2], k[2]}, dtype)
             ? "a mask of another type, shape or layout"
             : nullptr;
}

// Also checks the forward pass's results and the incoming gradient.
Reason why_not_attend_backward(
    const Tensor& grad_out,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& out,
    const Tensor& log_sums,
    double dropout_p,
    bool is_causal,
    const std::optional<Tensor>& mask,
    std::optional<double> scale) {
  if (const auto reason = why_not_attend(
          query, key, value, dropout_p, is_causal, mask, scale)) {
    return reason;
  }
  const auto dtype = query.scalar_type();
  const auto q = query.sizes();
  if (!grad_out.defined() || grad_out.scalar_type() != dtype ||
      !is_dense(grad_out) || grad_out.sizes() != q ||
      !takes_heads(out, dtype) || out.sizes() != q ||
      log_sums.scalar_type() != kFloat || !is_dense(log_sums) ||
      log_sums.sizes() != q.slice(0, 3)) {
    return "results of another type, shape or layout";
  }
  return query.size(1) != key.size(1)
             ? "heads that share keys"
             : why_leave_attention_gradient(query, key);
}

HeadStrides head_strides(const Tensor& t) {
  return {t.stride(0), t.stride(1), t.stride(2)};
}

kernels::MaskStrides mask_strides(const Tensor& mask) {
  const auto dim = mask.dim();
  const auto step = [&](int64_t back) {
    return back > dim || mask.size(dim - back) == 1 ? 0
                                                    : mask.stride(dim - back);
  };
  return {step(4), step(3), step(2), step(1)};
}

// The arguments that the kernel and its gradient share, without results.
kernels::AttentionArgs make_args(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& log_sums,
    bool is_causal,
    const std::optional<Tensor>& mask,
    std::optional<double> scale) {
  const auto size = query.size(3);
  kernels::AttentionArgs args{
      .q = query.const_data_ptr(),
      .k = key.const_data_ptr(),
      .v = value.const_data_ptr(),
      .q_strides = head_strides(query),
      .k_strides = head_strides(key),
      .v_strides = head_strides(value),
      .log_sums = static_cast<float*>(log_sums.data_ptr()),
      .log_sum_strides = head_strides(log_sums),
      .batch = query.size(0),
      .heads = query.size(1),
      .kv_heads = key.size(1),
      .target = query.size(2),
      .source = key.size(2),
      .size = size,
      .scale = static_cast<float>(
          scale.value_or(1 / std::sqrt(static_cast<double>(size)))),
      .causal = is_causal,
      .dtype = kernel_dtype(query)};
  if (has(mask)) {
    args.mask = mask->const_data_ptr();
    args.mask_strides = mask_strides(*mask);
    args.mask_dtype = kernel_dtype(*mask);
  }
  return args;
}

// Scratch for all threads with work; it lives as long as the returned tensor.
Tensor
make_scratch(kernels::AttentionArgs& args, int64_t bytes, int64_t parts) {
  args.scratch_bytes = bytes * std::min<int64_t>(at::get_num_threads(), parts);
  Tensor scratch =
      at::detail::empty_cpu({args.scratch_bytes}, TensorOptions(kByte));
  args.scratch = scratch.mutable_data_ptr();
  return scratch;
}

// A tensor (batch, heads, time, size) laid out as (batch, time, heads, size).
Tensor empty_heads(const Tensor& like) {
  const auto s = like.sizes();
  const Tensor result =
      at::detail::empty_cpu({s[0], s[2], s[1], s[3]}, like.options());
  return result.transpose(1, 2);
}

std::tuple<Tensor, Tensor> attend(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    double /*dropout_p*/,
    bool is_causal,
    const std::optional<Tensor>& attn_mask,
    std::optional<double> scale) {
  // For a query that overlaps itself, the last dimension of the result may be
  // elsewhere in the order of strides.
  auto out = at::empty_like(query);
  if (!takes_heads(out, query.scalar_type())) {
    out = empty_heads(query);
  }
  Tensor log_sums = at::detail::empty_cpu(
      {query.size(0), query.size(2), query.size(1)},
      query.options().dtype(kFloat));
  log_sums = log_sums.transpose(1, 2);
  auto args =
      make_args(query, key, value, log_sums, is_causal, attn_mask, scale);
  args.out = out.mutable_data_ptr();
  args.out_strides = head_strides(out);
  prepare_kernel(zendnn_matmul);
  const auto scratch = make_scratch(
      args,
      kernels::attention_scratch_bytes(args),
      log_sums.numel()); // a thread takes at least one query
  kernels::attention(args);
  return {std::move(out), std::move(log_sums)};
}

std::tuple<Tensor, Tensor, Tensor> attend_backward(
    const Tensor& grad_out,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& out,
    const Tensor& logsumexp,
    double /*dropout_p*/,
    bool is_causal,
    const std::optional<Tensor>& attn_mask,
    std::optional<double> scale) {
  // The gradient of a sum is an expanded number.
  const auto grad = grad_out.stride(3) == 1 ? grad_out : grad_out.contiguous();
  auto grad_query = empty_heads(query), grad_key = empty_heads(key),
       grad_value = empty_heads(value);
  kernels::AttentionBackwardArgs args{
      .forward =
          make_args(query, key, value, logsumexp, is_causal, attn_mask, scale),
      .grad_out = grad.const_data_ptr(),
      .grad_q = grad_query.mutable_data_ptr(),
      .grad_k = grad_key.mutable_data_ptr(),
      .grad_v = grad_value.mutable_data_ptr(),
      .grad_out_strides = head_strides(grad),
      .grad_q_strides = head_strides(grad_query),
      .grad_k_strides = head_strides(grad_key),
      .grad_v_strides = head_strides(grad_value)};
  args.forward.out = out.data_ptr();
  args.forward.out_strides = head_strides(out);
  prepare_kernel(zendnn_matmul);
  const auto scratch = make_scratch(
      args.forward,
      kernels::attention_backward_scratch_bytes(args),
      query.size(0) * query.size(1));
  kernels::attention_backward(args);
  return {std::move(grad_query), std::move(grad_key), std::move(grad_value)};
}

} // namespace

void list_attention(torch::Library& m) {
  add_rows<
      Row<"aten::_scaled_dot_product_flash_attention_for_cpu", // .46-.92,
                                                               // .51-.98
          Needs::vectors,
          why_not_attend,
          attend,
          at::cpu::_scaled_dot_product_flash_attention_for_cpu>,
      Row<"aten::_scaled_dot_product_flash_attention_for_cpu_backward",
          Needs::vectors,
          why_not_attend_backward,
          attend_backward,
          at::cpu::_scaled_dot_product_flash_attention_for_cpu_backward>>(m);
}

} // namespace at::native::zendnn::cpu
