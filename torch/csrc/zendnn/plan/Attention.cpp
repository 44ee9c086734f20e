// Fused attention on whatever strides its operands have.
#include <torch/csrc/zendnn/plan/Kernel.h>

#include <ATen/Parallel.h>
#include <ATen/native/zendnn/kernels/attention.h>

#include <cmath>

namespace at::native::zendnn::plan {
namespace {

bool swapped(const Node& node) {
  return node.get(attr::attention::swapped);
}

// As a model spells it out: what is true in a mask adds 1, and the softmax of
// nothing is NaN.
bool additive(const Node& node) {
  return node.get(attr::attention::additive);
}

// The mask, and the choice of scores that are replaced.
constexpr size_t kMask = 3, kChosen = 4;

// How what broadcasts to the scores is stepped through.
kernels::MaskStrides score_strides(const Dims& sizes, const Dims& strides) {
  const auto wide = broadcast_strides(sizes, strides, Dims(4));
  return {wide[0], wide[1], wide[2], wide[3]};
}

// A place whose innermost elements lie side by side, or are one, perhaps
// repeated.
Place score_place(Builder& builder, int64_t value) {
  const auto& sizes = builder.sizes(value);
  const auto known = builder.strided(value);
  return !sizes.empty() && sizes.back() != 1 && known.strides.back() > 1
             ? builder.dense(value)
             : known;
}

// As many heads and batches of one as there are dimensions missing.
Dims in_heads(Dims sizes, int64_t missing) {
  if (sizes.size() < 2 || sizes.size() > 4) {
    refuse("an attention whose operands have other ranks");
  }
  sizes.insert(sizes.begin(), 4 - sizes.size(), missing);
  return sizes;
}

kernels::HeadStrides head_strides(const Dims& strides) {
  const auto wide = in_heads(strides, 0);
  return {wide[0], wide[1], wide[2]};
}

} // namespace

void infer_attention(Values& values, const Node& node) {
  const auto query = tensor(node, 0);
  const auto rank = values.sizes(query).size();
  const auto q = in_heads(values.sizes(query), 1),
             k = in_heads(values.sizes(tensor(node, 1)), 1),
             v = in_heads(values.sizes(tensor(node, 2)), 1);
  const auto dtype = values.dtype(query);
  type_of(dtype);
  if (values.sizes(tensor(node, 1)).size() != rank ||
      values.sizes(tensor(node, 2)).size() != rank ||
      (rank != 4 && swapped(node)) || k != v || k[0] != q[0] || k[3] != q[3] ||
      q[1] % k[1] != 0 || q[3] > 1024) {
    refuse("an attention whose operands have other sizes");
  }
  const bool grouped = node.get(attr::attention::grouped);
  if (q[1] != k[1] && k[1] != 1 && !grouped) {
    refuse("an attention of groups that nobody asked for");
  }
  if (values.dtype(tensor(node, 1)) != dtype ||
      values.dtype(tensor(node, 2)) != dtype) {
    refuse("tensors of different dtypes");
  }
  for (const auto operand : {kMask, kChosen}) {
    if (!has(node, operand)) {
      continue;
    }
    const auto mask = tensor(node, operand);
    const auto& sizes = values.sizes(mask);
    const Dims whole{q[0], q[1], q[2], k[2]};
    const bool of_bool = values.dtype(mask) == c10::ScalarType::Bool;
    if (operand == kChosen && !of_bool) {
      refuse("a choice of scores that is not a tensor of bool");
    }
    if (operand == kChosen) {
      rounded(dtype, node.get(attr::attention::fill));
    }
    if (operand == kMask && (!of_bool || additive(node))) {
      type_of(values.dtype(mask));
    }
    if (sizes.size() > rank) {
      refuse("a mask with too many dimensions");
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] != 1 && sizes[i] != whole[4 - sizes.size() + i]) {
        refuse("a mask that does not broadcast");
      }
    }
  }
  if (swapped(node)) {
    values.set_type(node.output(), {q[0], q[2], q[1], q[3]}, dtype);
    return;
  }
  // torch's kernel of this name follows the query, what it composes does not.
  const auto mask_rank =
      has(node, kMask) ? values.sizes(tensor(node, kMask)).size() : 4;
  const auto& sizes = values.sizes(query);
  const auto& strides = values.strides(query);
  const bool follows = rank == 4 && strides.back() == 1 && !additive(node) &&
                       (q[1] == k[1] || grouped) &&
                       (mask_rank == 2 || mask_rank == 4);
  values.set_type(
      node.output(),
      sizes,
      dtype,
      follows ? combined_strides({{sizes, strides}})
              : row_major_strides(sizes));
}

void build_attention(Builder& builder, const Node& node) {
  const auto query = tensor(node, 0), key = tensor(node, 1),
             value = tensor(node, 2), output = node.output();
  const auto q = builder.with_rows(query), k = builder.with_rows(key),
             v = builder.with_rows(value);
  const auto sizes = in_heads(builder.sizes(query), 1),
             source = in_heads(builder.sizes(key), 1);

  kernels::AttentionArgs args;
  args.q_strides = head_strides(q.strides);
  args.k_strides = head_strides(k.strides);
  args.v_strides = head_strides(v.strides);
  args.batch = sizes[0];
  args.heads = sizes[1];
  args.kv_heads = source[1];
  args.target = sizes[2];
  args.source = source[2];
  args.size = sizes[3];
  const auto scale = node.get(attr::attention::scale);
  args.scale = static_cast<float>(
      scale == 0 ? 1 / std::sqrt(static_cast<double>(args.size)) : scale);
  args.causal = node.get(attr::attention::causal);
  args.unseen_is_nan = additive(node);
  args.dtype = kernel_type(builder.dtype(query));

  Ref mask, keep, chosen;
  if (has(node, kChosen)) {
    const auto operand = tensor(node, kChosen);
    const auto from = score_place(builder, operand);
    chosen = from.ref;
    args.chosen_strides = score_strides(builder.sizes(operand), from.strides);
    args.fill_where = node.get(attr::attention::fill_where);
    args.fill = rounded(builder.dtype(query), node.get(attr::attention::fill));
  }
  if (has(node, kMask)) {
    const auto operand = tensor(node, kMask);
    const auto from = score_place(builder, operand);
    const auto steps = score_strides(builder.sizes(operand), from.strides);
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
  using Args = kernels::AttentionArgs;
  add_kernel(
      builder,
      node,
      "attention",
      kernels::attention,
      args,
      {{&Args::q, q.ref},
       {&Args::k, k.ref},
       {&Args::v, v.ref},
       {&Args::mask, mask},
       {&Args::keep, keep},
       {&Args::chosen, chosen},
       {&Args::out, to.ref},
       {&Args::scratch, scratch}},
      4.0 * static_cast<double>(args.batch * args.heads * args.target) *
          static_cast<double>(args.source * args.size));
}

} // namespace at::native::zendnn::plan
