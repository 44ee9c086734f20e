// Fused attention on whatever strides its operands have.
#include <torch/csrc/zendnn/plan/build/Kernel.h>

#include <ATen/Parallel.h>
#include <ATen/native/zendnn/kernels/attention.h>

#include <cmath>

namespace at::native::zendnn::plan {
namespace {

// The mask, and the choice of scores that are replaced.
constexpr size_t kMask = 3, kChosen = 4;

// What broadcasts to the scores, and its strides over them: elements of the
// last dimension lie side by side, or are one.
std::pair<Ref, kernels::MaskStrides>
read_scores(Builder& builder, const Node& node, size_t operand) {
  if (!has(node, operand)) {
    return {};
  }
  const auto value = tensor(node, operand);
  const auto& sizes = builder.values().sizes(value);
  auto place = builder.strided(value);
  if (!sizes.empty() && sizes.back() != 1 && place.strides.back() > 1) {
    place = builder.with_rows(value);
  }
  const auto wide = broadcast_strides(sizes, place.strides, Dims(4));
  return {place.ref, {wide[0], wide[1], wide[2], wide[3]}};
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

// Throws Refused unless a mask or choice broadcasts to the scores.
void check_scores(
    const Values& values,
    const Node& node,
    size_t operand,
    const Dims& scores) {
  const auto& sizes = values.sizes(tensor(node, operand));
  if (sizes.size() > values.sizes(tensor(node, 0)).size()) {
    refuse("a mask with too many dimensions");
  }
  if (broadcast(scores, sizes) != scores) {
    refuse("a mask that does not broadcast");
  }
}

} // namespace

void infer_attention(Values& values, const Node& node) {
  const auto query = tensor(node, 0), key = tensor(node, 1),
             value = tensor(node, 2);
  const auto& sizes = values.sizes(query);
  const auto rank = sizes.size();
  const auto q = in_heads(sizes, 1), k = in_heads(values.sizes(key), 1),
             v = in_heads(values.sizes(value), 1);
  const auto dtype = values.dtype(query);
  const bool swapped = node.as<attr::attention>().swapped;
  const bool additive = node.as<attr::attention>().additive;
  const bool grouped = node.as<attr::attention>().grouped;
  type_of(dtype);
  if (values.sizes(key).size() != rank || values.sizes(value).size() != rank ||
      (rank != 4 && swapped) || k != v || k[0] != q[0] || k[3] != q[3] ||
      q[1] % k[1] != 0 || q[3] > 1024) {
    refuse("an attention whose operands have other sizes");
  }
  if (q[1] != k[1] && k[1] != 1 && !grouped) {
    refuse("an attention of groups that nobody asked for");
  }
  if (values.dtype(key) != dtype || values.dtype(value) != dtype) {
    refuse("tensors of different dtypes");
  }
  const Dims scores{q[0], q[1], q[2], k[2]};
  size_t mask_rank = 4;
  if (has(node, kMask)) {
    const auto mask = tensor(node, kMask);
    mask_rank = values.sizes(mask).size();
    const auto added = values.dtype(mask);
    if (added != c10::ScalarType::Bool || additive) {
      type_of(added);
    }
    // torch's operator takes bool and float32 beside the queries' dtype.
    // Spelled out, scores become float32 beside a mask of that, and then do not
    // multiply values of another dtype.
    if (added != dtype &&
        (additive ? dtype != kFloat
                  : added != c10::ScalarType::Bool && added != kFloat)) {
      refuse("a mask of another dtype");
    }
    check_scores(values, node, kMask, scores);
  }
  if (has(node, kChosen)) {
    if (values.dtype(tensor(node, kChosen)) != c10::ScalarType::Bool) {
      refuse("a choice of scores that is not a tensor of bool");
    }
    rounded(dtype, node.as<attr::attention>().fill);
    check_scores(values, node, kChosen, scores);
  }
  if (swapped) {
    values.set_type(node.output(), {q[0], q[2], q[1], q[3]}, dtype);
    return;
  }
  // torch's kernel of this name follows the query, what it composes does not.
  const auto& strides = values.strides(query);
  const bool follows = rank == 4 && strides.back() == 1 && !additive &&
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
  const auto sizes = in_heads(builder.values().sizes(query), 1),
             source = in_heads(builder.values().sizes(key), 1);
  const auto scale = node.as<attr::attention>().scale;
  using Args = kernels::AttentionArgs;
  Args args{
      .q_strides = head_strides(q.strides),
      .k_strides = head_strides(k.strides),
      .v_strides = head_strides(v.strides),
      .batch = sizes[0],
      .heads = sizes[1],
      .kv_heads = source[1],
      .target = sizes[2],
      .source = source[2],
      .size = sizes[3],
      .scale = static_cast<float>(
          scale == 0 ? 1 / std::sqrt(static_cast<double>(sizes[3])) : scale),
      .causal = node.as<attr::attention>().causal,
      // As a model spells it out: the softmax of nothing is NaN.
      .unseen_is_nan = node.as<attr::attention>().additive,
      .fill_where = node.as<attr::attention>().fill_where,
      .dtype = kernel_type(builder.values().dtype(query))};
  Ref mask, keep, chosen;
  std::tie(chosen, args.chosen_strides) = read_scores(builder, node, kChosen);
  if (chosen) {
    args.fill =
        rounded(builder.values().dtype(query), node.as<attr::attention>().fill);
  }
  std::tie(mask, args.mask_strides) = read_scores(builder, node, kMask);
  if (mask &&
      builder.values().dtype(tensor(node, kMask)) == c10::ScalarType::Bool) {
    std::swap(mask, keep);
    args.keep_strides = args.mask_strides;
  } else if (mask) {
    args.mask_dtype = kernel_type(builder.values().dtype(tensor(node, kMask)));
  }
  const auto to = builder.make_dense(output);
  args.out_strides = head_strides(to.strides);
  if (node.as<attr::attention>().swapped) {
    std::swap(args.out_strides.head, args.out_strides.time);
  }
  args.scratch_bytes =
      kernels::attention_scratch_bytes(args) * at::get_num_threads();
  const auto scratch = builder.scratch(args.scratch_bytes);
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
