// Fused attention on whatever strides its operands have.
#include <torch/csrc/zendnn/plan/Operators.h>

#include <ATen/Parallel.h>
#include <ATen/native/zendnn/kernels/attention.h>

#include <cmath>

namespace at::native::zendnn::plan {
namespace {

bool swapped(const Node& node) {
  return node.integer("swapped", 0) != 0;
}

bool has_mask(const Node& node) {
  return node.inputs.size() > 3 && node.inputs[3];
}

kernels::HeadStrides head_strides(const Dims& strides) {
  return {strides[0], strides[1], strides[2]};
}

// A place whose innermost elements lie side by side.
Place with_rows(Builder& builder, int64_t value) {
  const auto known = builder.strided(value);
  return known.strides.back() == 1 || builder.sizes(value).back() == 1
             ? known
             : builder.dense(value);
}

} // namespace

void infer_attention(Builder& builder, const Node& node) {
  const auto query = tensor(node, 0);
  const auto &q = builder.sizes(query), &k = builder.sizes(tensor(node, 1)),
             &v = builder.sizes(tensor(node, 2));
  const auto dtype = builder.dtype(query);
  type_of(dtype);
  if (q.size() != 4 || k.size() != 4 || k != v || k[0] != q[0] ||
      k[3] != q[3] || q[1] % k[1] != 0 || q[3] > 256) {
    refuse("an attention whose operands have other sizes");
  }
  if (builder.dtype(tensor(node, 1)) != dtype ||
      builder.dtype(tensor(node, 2)) != dtype) {
    refuse("tensors of different dtypes");
  }
  if (has_mask(node)) {
    const auto mask = tensor(node, 3);
    const auto& sizes = builder.sizes(mask);
    const Dims whole{q[0], q[1], q[2], k[2]};
    if (builder.dtype(mask) != c10::ScalarType::Bool) {
      type_of(builder.dtype(mask));
    }
    if (sizes.size() > 4) {
      refuse("a mask with too many dimensions");
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] != 1 && sizes[i] != whole[4 - sizes.size() + i]) {
        refuse("a mask that does not broadcast");
      }
    }
  }
  builder.set_type(
      node.output(), swapped(node) ? Dims{q[0], q[2], q[1], q[3]} : q, dtype);
}

void build_attention(Builder& builder, const Node& node) {
  const auto query = tensor(node, 0), key = tensor(node, 1),
             value = tensor(node, 2), output = node.output();
  const auto q = with_rows(builder, query), k = with_rows(builder, key),
             v = with_rows(builder, value);
  const auto& sizes = builder.sizes(query);

  kernels::AttentionArgs args;
  args.q_strides = head_strides(q.strides);
  args.k_strides = head_strides(k.strides);
  args.v_strides = head_strides(v.strides);
  args.batch = sizes[0];
  args.heads = sizes[1];
  args.kv_heads = builder.sizes(key)[1];
  args.target = sizes[2];
  args.source = builder.sizes(key)[2];
  args.size = sizes[3];
  const auto scale = node.real("scale", 0);
  args.scale = static_cast<float>(
      scale == 0 ? 1 / std::sqrt(static_cast<double>(args.size)) : scale);
  args.causal = node.integer("causal", 0) != 0;
  args.dtype = kernel_type(builder.dtype(query));

  Ref mask, keep;
  if (has_mask(node)) {
    const auto operand = tensor(node, 3);
    const auto& mask_sizes = builder.sizes(operand);
    auto from = builder.strided(operand);
    if (!mask_sizes.empty() && mask_sizes.back() != 1 &&
        from.strides.back() > 1) {
      from = builder.dense(operand);
    }
    Dims strides(4, 0);
    for (size_t i = 0; i < mask_sizes.size(); ++i) {
      strides[4 - mask_sizes.size() + i] =
          mask_sizes[i] == 1 ? 0 : from.strides[i];
    }
    const kernels::MaskStrides steps{
        strides[0], strides[1], strides[2], strides[3]};
    if (builder.dtype(operand) == c10::ScalarType::Bool) {
      keep = from.ref;
      args.keep_strides = steps;
    } else {
      mask = from.ref;
      args.mask_strides = steps;
      args.mask_dtype = kernel_type(builder.dtype(operand));
    }
  }
  const auto to = builder.make_dense(output);
  const auto row = args.size, all = args.heads * args.size;
  args.out_strides =
      swapped(node)
          ? kernels::HeadStrides{args.target * all, row, all}
          : kernels::HeadStrides{args.target * all, args.target * row, row};
  args.scratch_bytes =
      kernels::attention_scratch_bytes(args) * at::get_num_threads();
  const auto scratch = builder.scratch(args.scratch_bytes);
  builder.add_kernel(
      node,
      "attention",
      {q.ref, k.ref, v.ref, mask, keep, to.ref, scratch},
      [args, q = q.ref, k = k.ref, v = v.ref, mask, keep, to = to.ref, scratch](
          const Frame& frame) {
        auto call = args;
        call.q = frame.at(q);
        call.k = frame.at(k);
        call.v = frame.at(v);
        call.out = frame.at(to);
        call.mask = frame.at(mask);
        call.keep = frame.at<uint8_t>(keep);
        call.scratch = frame.at(scratch);
        kernels::attention(call);
      },
      4.0 * static_cast<double>(args.batch * args.heads * args.target) *
          static_cast<double>(args.source * args.size));
}

} // namespace at::native::zendnn::plan
