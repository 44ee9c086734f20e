#include <torch/csrc/zendnn/plan/build/PostOps.h>
#include <torch/csrc/zendnn/plan/describe/Operators.h>

#include <algorithm>
#include <cctype>

namespace at::native::zendnn::plan {
namespace {

void check_operands(
    const Operator& op,
    const Node& node,
    const std::vector<bool>& is_number) {
  std::string letters(op.operands);
  if (letters.ends_with('*')) {
    const auto repeated = letters[letters.size() - 2];
    letters.resize(letters.size() - 2); // it may be left out
    letters.resize(std::max(letters.size(), node.inputs.size()), repeated);
  }
  while (letters.size() < node.inputs.size()) {
    const auto index = static_cast<int>(letters.size());
    if (std::none_of(node.post.begin(), node.post.end(), [&](const auto& post) {
          return post.operand == index;
        })) {
      refuse(
          name_of(node.op) + " with " + std::to_string(node.inputs.size()) +
          " operands");
    }
    letters += 't';
  }
  for (size_t i = 0; i < letters.size(); ++i) {
    const auto operand = i < node.inputs.size() ? node.inputs[i] : Operand{};
    const bool may_be_none = std::isupper(letters[i]) != 0;
    const bool number =
        operand.kind == Operand::Kind::number ||
        (operand.kind == Operand::Kind::value && is_number[operand.index]);
    const bool wants_number = std::tolower(letters[i]) == 'n';
    if (operand ? number != wants_number : !may_be_none) {
      refuse(
          name_of(node.op) + " whose operand " + std::to_string(i) + " is no " +
          (wants_number ? "number" : "tensor"));
    }
  }
}

void check_post_ops(const Operator& op, const Node& node) {
  if (!op.post_ops && !node.post.empty()) {
    refuse(name_of(node.op) + " with post-ops");
  }
  for (const auto& post : node.post) {
    if (!post.is_binary() && !has_primitive(post.function)) {
      refuse(name_of(node.op) + " with a post-op '" + post.name() + "'");
    }
    if (post.is_binary() &&
        static_cast<size_t>(post.operand) < op.operands.size()) {
      refuse(
          name_of(node.op) +
          " with a post-op that reads the operator's own operand");
    }
  }
}

void check_node(const Node& node, const std::vector<bool>& is_number) {
  const auto& op = row_of(node.op);
  check_post_ops(op, node);
  check_operands(op, node, is_number);
  const size_t most = op.results == Results::tensors      ? node.outputs.size()
                      : op.results == Results::one_or_two ? 2
                                                          : 1;
  if (node.outputs.size() > most) {
    refuse(
        name_of(node.op) + " with " + std::to_string(node.outputs.size()) +
        " results");
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
      is_number[output] = row_of(node.op).results == Results::number;
    }
  }
  for (const auto output : region.outputs) {
    if (is_number[output]) {
      refuse("a result that is a number");
    }
  }
}

Op op_named(std::string_view name) {
  const auto& rows = operators();
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& it) {
    return it.name == name;
  });
  if (row == rows.end()) {
    refuse(
        "there is no operator '" + std::string(name) +
        "' in this build: optimize the module again");
  }
  return static_cast<Op>(row - rows.begin());
}

} // namespace at::native::zendnn::plan
