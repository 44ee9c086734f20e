// The fused attention behind F.scaled_dot_product_attention, on a kernel of
// ours.
#include <ATen/native/zendnn/cpu/Overrides.h>

#include <ATen/CPUFunctions.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/native/zendnn/Context.h>
#include <ATen/native/zendnn/kernels/attention.h>
#include <ATen/ops/empty_like.h>

#include <cmath>
#include <string_view>

namespace at::native::zendnn::cpu {
namespace {

using kernels::HeadStrides;

bool is_dense(const Tensor& t) {
  return t.layout() == kStrided && t.device().is_cpu() && !t.is_conj() &&
         !t.is_neg();
}

// Whether this is a tensor (batch, heads, time, size) as the kernel reads them.
bool takes_heads(const Tensor& t, ScalarType dtype) {
  return t.dim() == 4 && t.scalar_type() == dtype && is_dense(t) &&
         (t.stride(3) == 1 || t.size(3) == 1);
}

// Of two or four dimensions, each 1 or the scores'.
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

// Whether the kernel does the problem. Says nothing about errors: torch's
// kernel reports them.
bool takes(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    double dropout_p,
    const std::optional<Tensor>& mask) {
  static const bool has_kernels = std::string_view(kernels::isa()) != "none";
  const auto dtype = query.scalar_type();
  if (!enabled() || !has_kernels || dropout_p != 0 ||
      (dtype != kFloat && dtype != kBFloat16) || !takes_heads(query, dtype) ||
      !takes_heads(key, dtype) || !takes_heads(value, dtype)) {
    return false;
  }
  const auto q = query.sizes(), k = key.sizes();
  return query.numel() > 0 && key.numel() > 0 && k == value.sizes() &&
         q[0] == k[0] && q[1] == k[1] && q[3] == k[3] &&
         (!mask || takes_mask(*mask, {q[0], q[1], q[2], k[2]}, dtype));
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

kernels::DType kernel_type(const Tensor& t) {
  return t.scalar_type() == kFloat ? kernels::DType::float32
                                   : kernels::DType::bfloat16;
}

} // namespace

std::tuple<Tensor, Tensor> flash_attention(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    double dropout_p,
    bool is_causal,
    const std::optional<Tensor>& attn_mask,
    std::optional<double> scale) {
  if (!takes(query, key, value, dropout_p, attn_mask)) {
    return at::cpu::_scaled_dot_product_flash_attention_for_cpu(
        query, key, value, dropout_p, is_causal, attn_mask, scale);
  }
  const auto batch = query.size(0), heads = query.size(1),
             target = query.size(2), size = query.size(3);
  auto out = at::empty_like(query);
  Tensor log_sums = at::detail::empty_cpu(
      {batch, target, heads}, query.options().dtype(kFloat));
  log_sums = log_sums.transpose(1, 2);
  kernels::AttentionArgs args{
      .q = query.const_data_ptr(),
      .k = key.const_data_ptr(),
      .v = value.const_data_ptr(),
      .out = out.mutable_data_ptr(),
      .q_strides = head_strides(query),
      .k_strides = head_strides(key),
      .v_strides = head_strides(value),
      .out_strides = head_strides(out),
      .log_sums = log_sums.mutable_data_ptr<float>(),
      .log_sum_strides = head_strides(log_sums),
      .batch = batch,
      .heads = heads,
      .kv_heads = heads,
      .target = target,
      .source = key.size(2),
      .size = size,
      .scale = static_cast<float>(
          scale.value_or(1 / std::sqrt(static_cast<double>(size)))),
      .causal = is_causal,
      .dtype = kernel_type(query)};
  if (attn_mask) {
    args.mask = attn_mask->const_data_ptr();
    args.mask_strides = mask_strides(*attn_mask);
    args.mask_dtype = kernel_type(*attn_mask);
  }
  args.scratch_bytes =
      kernels::attention_scratch_bytes(args) * at::get_num_threads();
  const auto scratch =
      at::detail::empty_cpu(
      {args.scratch_bytes}, TensorOptions(kByte));
  args.scratch = scratch.mutable_data_ptr();
  kernels::attention(args);
  return {std::move(out), std::move(log_sums)};
}

} // namespace at::native::zendnn::cpu
