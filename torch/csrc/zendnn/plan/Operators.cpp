#include <torch/csrc/zendnn/plan/Operators.h>
#include <torch/csrc/zendnn/plan/PostOps.h>

#include <algorithm>
#include <cctype>

namespace at::native::zendnn::plan {
namespace {

// The letter of an operand, which stands behind the operator's own when it is
// one of a post-op.
char letter_of(const Operator& op, const Node& node, size_t index) {
  const auto letters = op.operands.substr(0, op.operands.find('*'));
  if (index < letters.size()) {
    return letters[index];
  }
  if (letters.size() < op.operands.size()) {
    return letters.back();
  }
  const bool of_post_op =
      std::any_of(node.post.begin(), node.post.end(), [&](const auto& post) {
        return post.operand == static_cast<int>(index);
      });
  if (!of_post_op) {
    refuse(
        node.op + " with " + std::to_string(node.inputs.size()) + " operands");
  }
  return 't';
}

void check_operands(
    const Operator& op,
    const Node& node,
    const std::vector<bool>& is_number) {
  const auto letters = op.operands.substr(0, op.operands.find('*'));
  // The one that is repeated may be left out.
  const auto own = letters.size() - (letters.size() < op.operands.size());
  for (size_t i = 0; i < std::max(own, node.inputs.size()); ++i) {
    const auto letter = letter_of(op, node, i);
    const auto operand = i < node.inputs.size() ? node.inputs[i] : Operand{};
    const bool may_be_none = std::isupper(letter) != 0;
    const bool number =
        operand.kind == Operand::Kind::number ||
        (operand.kind == Operand::Kind::value && is_number[operand.index]);
    const bool wants_number = std::tolower(letter) == 'n';
    if (operand ? number != wants_number : !may_be_none) {
      refuse(
          node.op + " whose operand " + std::to_string(i) + " is no " +
          (wants_number ? "number" : "tensor"));
    }
  }
}

void check_post_ops(const Operator& op, const Node& node) {
  if (!op.post_ops && !node.post.empty()) {
    refuse(node.op + " with post-ops");
  }
  for (const auto& post : node.post) {
    if (!post.is_binary()) {
      if (!has_primitive(post.algorithm)) {
        refuse(node.op + " with a post-op '" + post.algorithm + "'");
      }
      continue;
    }
    combination_of(post.algorithm);
    if (static_cast<size_t>(post.operand) < op.operands.size()) {
      refuse(node.op + " with a post-op that reads the operator's own operand");
    }
  }
}

void check_node(const Node& node, const std::vector<bool>& is_number) {
  const auto& op = find_operator(node.op);
  check_post_ops(op, node);
  check_operands(op, node, is_number);
  const auto& known = op.attributes;
  for (const auto& [key, content] : node.attributes) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      refuse(node.op + " with an attribute '" + key + "'");
    }
  }
  const size_t most = op.results == Results::tensors      ? node.outputs.size()
                      : op.results == Results::one_or_two ? 2
                                                          : 1;
  if (node.outputs.size() > most) {
    refuse(
        node.op + " with " + std::to_string(node.outputs.size()) + " results");
  }
}

} // namespace

void check_operators(const Description& region) {
  std::vector<bool> is_number(region.values);
  for (const auto& input : region.inputs) {
    is_number[input.value] = input.is_number;
  }
  for (const auto& node : region.nodes) {
    check_node(node, is_number);
    for (const auto output : node.outputs) {
      is_number[output] = find_operator(node.op).results == Results::number;
    }
  }
  for (const auto output : region.outputs) {
    if (is_number[output]) {
      refuse("a result that is a number");
    }
  }
}

const Operator& find_operator(const std::string& name) {
  return find_row(operators(), name, "the operator");
}

} // namespace at::native::zendnn::plan
