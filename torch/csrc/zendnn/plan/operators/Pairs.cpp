// Pairs of features: gathered elements, and products of vectors.
#include <torch/csrc/zendnn/plan/build/Kernel.h>

#include <ATen/native/zendnn/kernels/embedding.h>
#include <ATen/native/zendnn/kernels/memory.h>

namespace at::native::zendnn::plan {
namespace {

// Throws Refused unless operands 1 and 2 are constant indices within the
// limits.
void check_pairs(
    const Values& values,
    const Node& node,
    int64_t rows,
    int64_t columns) {
  for (const auto& [operand, limit] : {std::pair{1, rows}, {2, columns}}) {
    const auto* index = values.constant(tensor(node, operand));
    if (index == nullptr || index->dim() != 1 ||
        index->scalar_type() != c10::ScalarType::Long ||
        index->numel() != values.sizes(tensor(node, 1))[0]) {
      refuse("a gathering by computed indices");
    }
    const auto* numbers = index->const_data_ptr<int64_t>();
    for (int64_t i = 0; i < index->numel(); ++i) {
      const auto number = numbers[i * index->stride(0)];
      if (number < 0 || number >= limit) {
        refuse("a gathering from outside the tensor");
      }
    }
  }
}

// Adds either kernel with what they share: the pairs and the result.
template <class Args>
void add_kernel_of_pairs(
    Builder& builder,
    const Node& node,
    Ref from,
    Args args,
    bool (*kernel)(const Args&),
    double flops = 0) {
  const auto rows = builder.dense(tensor(node, 1)).ref,
             columns = builder.dense(tensor(node, 2)).ref;
  const auto& sizes = builder.values().sizes(node.output());
  const auto to = builder.make_rows(node.output());
  args.pairs = sizes.back();
  args.out_stride = *row_stride(sizes, to.strides);
  args.dtype = kernel_type(builder.values().dtype(node.output()));
  // Constants may share their memory with a module, which may write to it: the
  // kernel checks indices again.
  add_kernel(
      builder,
      node,
      name_of(node.op),
      kernel,
      args,
      {{&Args::x, from},
       {&Args::row, rows},
       {&Args::col, columns},
       {&Args::out, to.ref}},
      flops);
}

} // namespace

void infer_gather_pairs(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  auto sizes = values.sizes(input);
  type_of(values.dtype(input));
  if (sizes.size() < 2 || sizes.size() > 3) {
    refuse("a gathering of a tensor with other dimensions");
  }
  check_pairs(values, node, sizes[sizes.size() - 2], sizes.back());
  sizes.pop_back();
  sizes.back() = values.sizes(tensor(node, 1))[0];
  values.set_type(node.output(), sizes, values.dtype(input));
}

void build_gather_pairs(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0);
  const auto& sizes = builder.values().sizes(input);
  const auto from = builder.strided(input);
  const auto rank = sizes.size();
  kernels::GatherPairsArgs args;
  args.batch = rank == 3 ? sizes[0] : 1;
  args.rows = sizes[rank - 2];
  args.cols = sizes[rank - 1];
  args.batch_stride = rank == 3 ? from.strides[0] : 0;
  args.row_stride = from.strides[rank - 2];
  args.col_stride = from.strides[rank - 1];
  add_kernel_of_pairs(builder, node, from.ref, args, kernels::gather_pairs);
}

void infer_pairwise_dot(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  const auto& sizes = values.sizes(input);
  type_of(values.dtype(input));
  if (sizes.size() != 3 || sizes[1] > 64) {
    refuse("an interaction of more than 64 features");
  }
  check_pairs(values, node, sizes[1], sizes[1]);
  values.set_type(
      node.output(),
      {sizes[0], values.sizes(tensor(node, 1))[0]},
      values.dtype(input));
}

void build_pairwise_dot(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0);
  const auto& sizes = builder.values().sizes(input);
  const auto from = builder.with_rows(input);
  kernels::PairwiseDotArgs args;
  args.batch_stride = from.strides[0];
  args.feature_stride = from.strides[1];
  args.batch = sizes[0];
  args.features = sizes[1];
  args.dim = sizes[2];
  add_kernel_of_pairs(
      builder,
      node,
      from.ref,
      args,
      kernels::pairwise_dot,
      2.0 * static_cast<double>(
                count(builder.values().sizes(node.output())) * args.dim));
}

} // namespace at::native::zendnn::plan
