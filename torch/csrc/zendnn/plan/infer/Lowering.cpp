// Takes apart nodes that no single step can do at the sizes at hand.
#include <torch/csrc/zendnn/plan/describe/Operators.h>

#include <algorithm>

namespace at::native::zendnn::plan {
namespace {

// The first post-op whose operand makes the result larger than the node's own;
// their number when there is none.
size_t first_outgrown(const Values& values, const Node& node) {
  const auto& result = values.sizes(node.output());
  const auto found =
      std::find_if(node.post.begin(), node.post.end(), [&](const PostOp& post) {
        return post.is_binary() &&
               broadcast(
                   values.sizes(node.inputs[post.operand].index), result) !=
                   result;
      });
  return found - node.post.begin();
}

void check_post_ops(const Values& values, const Node& node) {
  auto sizes = values.sizes(node.output());
  for (const auto& post : node.post) {
    if (!post.is_binary()) {
      continue;
    }
    const auto operand = node.inputs[post.operand].index;
    if (values.dtype(operand) != values.dtype(node.output())) {
      refuse("tensors of different dtypes");
    }
    sizes = broadcast(sizes, values.sizes(operand), post.keeps);
  }
}

// A node that combines two values, with the post-ops of another node from
// `first` on.
Node combine(
    kernels::Binary algorithm,
    int64_t a,
    const Operand& b,
    const Node& of,
    size_t first) {
  Node node{
      .op = Op::binary,
      .inputs = {value_operand(a), b},
      .attributes = attr::binary{.algorithm = algorithm},
      .label = of.label};
  node.post.assign(
      of.post.begin() + static_cast<int64_t>(first), of.post.end());
  for (auto& post : node.post) {
    if (post.is_binary()) {
      node.inputs.push_back(of.inputs[post.operand]);
      post.operand = static_cast<int>(node.inputs.size()) - 1;
    }
  }
  return node;
}

// Whether a norm adds something of another size to its operand first.
bool has_wide_residual(const Values& values, const Node& node) {
  return (node.op == Op::layer_norm || node.op == Op::rms_norm) &&
         has(node, 3) &&
         values.sizes(tensor(node, 0)) != values.sizes(tensor(node, 3));
}

// Whether each element of the result is a single product. In float32, torch
// keeps the sign of a zero; a sum, which begins with 0, loses it. In batches
// and for a single row or column, torch sums, too.
bool is_outer_product(const Values& values, const Node& node) {
  const bool is_product = node.op == Op::matmul
                              ? values.sizes(tensor(node, 1)).size() == 2
                              : node.op == Op::linear && !has(node, 2);
  const auto& result = values.sizes(node.output());
  return is_product && values.dtype(node.output()) == kFloat &&
         values.sizes(tensor(node, 0)).back() == 1 && result.back() > 1 &&
         count(result) > result.back();
}

// The multiplication that an outer product is: of a column by a row, which a
// layer has as a column of weights.
std::vector<Node> as_multiplication(Values& values, const Node& node) {
  std::vector<Node> nodes;
  auto row = node.inputs[1];
  if (node.op == Op::linear) {
    Node view{
        .op = Op::view,
        .inputs = {row, {Operand::Kind::number, -1}},
        .outputs = {values.add_value()},
        .label = node.label};
    row.index = view.output();
    nodes.push_back(std::move(view));
  }
  auto product = combine(kernels::Binary::mul, tensor(node, 0), row, node, 0);
  product.outputs = node.outputs;
  nodes.push_back(std::move(product));
  for (const auto& lowered : nodes) {
    row_of(lowered.op).infer(values, lowered);
  }
  return nodes;
}

} // namespace

bool infer_whole(Values& values, const Node& node) {
  if (has_wide_residual(values, node)) {
    return false;
  }
  row_of(node.op).infer(values, node);
  check_post_ops(values, node);
  return !is_outer_product(values, node) &&
         first_outgrown(values, node) == node.post.size();
}

std::vector<Node> infer_parts(Values& values, const Node& written) {
  std::vector<Node> nodes;
  auto node = written;
  const auto infer = [&] { row_of(node.op).infer(values, node); };
  if (has_wide_residual(values, node)) {
    auto sum =
        combine(kernels::Binary::add, tensor(node, 0), node.inputs[3], node, 0);
    std::get<attr::binary>(sum.attributes).in_place =
        node.as<attr::layer_norm>().in_place;
    sum.outputs = {
        node.outputs.size() > 1 ? node.outputs[1] : values.add_value()};
    node.inputs[0].index = sum.output();
    node.inputs.resize(3);
    node.outputs.resize(1);
    row_of(sum.op).infer(values, sum);
    nodes.push_back(std::move(sum));
  }
  infer();
  check_post_ops(values, node);
  if (is_outer_product(values, node)) {
    nodes = as_multiplication(values, node);
    node = std::move(nodes.back());
    nodes.pop_back();
  }
  for (;;) {
    const auto first = first_outgrown(values, node);
    if (first == node.post.size()) {
      nodes.push_back(std::move(node));
      return nodes;
    }
    const auto part = values.add_value();
    auto rest = combine(
        node.post[first].combination,
        part,
        node.inputs[node.post[first].operand],
        node,
        first + 1);
    rest.outputs = node.outputs;
    node.outputs.assign(1, part);
    node.post.resize(first);
    infer();
    nodes.push_back(std::move(node));
    node = std::move(rest);
    infer();
  }
}

} // namespace at::native::zendnn::plan
