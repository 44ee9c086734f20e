#include <torch/csrc/zendnn/plan/Operators.h>
#include <torch/csrc/zendnn/plan/PostOps.h>

#include <algorithm>
#include <cctype>

namespace at::native::zendnn::plan {
namespace {

constexpr bool kPostOps = true;

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
      function_of(post);
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
  static const std::unordered_map<std::string, Operator> table{
      {"size", {infer_size, build_nothing, "tn", {}, Results::number}},
      {"numel", {infer_numel, build_nothing, "t", {}, Results::number}},
      {"number_add", {infer_number, build_nothing, "nn", {}, Results::number}},
      {"number_sub", {infer_number, build_nothing, "nn", {}, Results::number}},
      {"number_mul", {infer_number, build_nothing, "nn", {}, Results::number}},
      {"number_floordiv",
       {infer_number, build_nothing, "nn", {}, Results::number}},
      {"number_remainder",
       {infer_number, build_nothing, "nn", {}, Results::number}},
      {"power", {infer_power, build_power, "n", {"exponent"}}},
      {"view", {infer_view, build_view, "tn*"}},
      {"flatten", {infer_view, build_view, "tnn"}},
      {"unflatten", {infer_view, build_view, "tnn*"}},
      {"transpose", {infer_view, build_view, "tnn"}},
      {"permute", {infer_view, build_view, "tn*"}},
      {"unsqueeze", {infer_view, build_view, "tn"}},
      {"squeeze", {infer_view, build_view, "tn"}},
      {"expand", {infer_view, build_view, "tn*"}},
      {"expand_as", {infer_view, build_view, "tt"}},
      {"select", {infer_view, build_view, "tnn"}},
      {"slice", {infer_view, build_view, "tnNNn"}},
      {"contiguous", {infer_view, build_view, "t"}},
      {"split",
       {infer_split,
        build_split,
        "t",
        {"dim", "sizes", "chunks"},
        Results::tensors}},
      {"convolution",
       {infer_convolution,
        build_convolution,
        "ttT",
        {"stride",
         "padding",
         "padding_end",
         "dilation",
         "groups",
         "transposed",
         "output_padding"},
        Results::tensor,
        kPostOps}},
      {"linear",
       {infer_linear,
        build_linear,
        "ttT",
        {"dtype"},
        Results::tensor,
        kPostOps}},
      {"matmul",
       {infer_matmul, build_matmul, "tt", {}, Results::tensor, kPostOps}},
      {"eltwise",
       {infer_same, build_eltwise, "t", {"algorithm", "alpha", "beta"}}},
      {"nonzero", {infer_nonzero, build_nonzero, "t"}},
      {"where", {infer_where, build_where, "tTT", {"value", "filled"}}},
      {"prelu", {infer_prelu, build_prelu, "tt"}},
      {"binary",
       {infer_binary,
        build_binary,
        "tt",
        {"algorithm"},
        Results::tensor,
        kPostOps}},
      {"softmax", {infer_same, build_softmax, "t", {"dim", "log"}}},
      {"layer_norm",
       {infer_layer_norm,
        build_layer_norm,
        "tTTT",
        {"eps", "dims", "sizes"},
        Results::one_or_two}},
      {"rms_norm",
       {infer_layer_norm,
        build_layer_norm,
        "tTTT",
        {"eps", "dims", "sizes", "dtype"},
        Results::one_or_two}},
      {"group_norm",
       {infer_group_norm, build_group_norm, "tTT", {"eps", "groups"}}},
      {"batch_norm",
       {infer_batch_norm,
        build_batch_norm,
        "tTTtt",
        {"eps"},
        Results::tensor,
        kPostOps}},
      {"attention",
       {infer_attention,
        build_attention,
        "tttTT",
        {"scale",
         "causal",
         "grouped",
         "swapped",
         "additive",
         "fill",
         "fill_where"}}},
      {"embedding", {infer_embedding, build_embedding, "tt"}},
      {"embedding_bag",
       {infer_embedding_bags,
        build_embedding_bags,
        "ttTT",
        {"mode", "last_offset"}}},
      {"embedding_bags",
       {infer_embedding_bags,
        build_embedding_bags,
        "T*",
        {"count", "mode", "last_offset"},
        Results::tensors}},
      {"gather_pairs", {infer_gather_pairs, build_gather_pairs, "ttt"}},
      {"pairwise_dot", {infer_pairwise_dot, build_pairwise_dot, "ttt"}},
      {"max_pool",
       {infer_pool,
        build_pool,
        "t",
        {"kernel", "stride", "padding", "dilation", "ceil"}}},
      {"avg_pool",
       {infer_pool,
        build_pool,
        "t",
        {"kernel", "stride", "padding", "dilation", "ceil", "include_pad"}}},
      {"adaptive_avg_pool",
       {infer_adaptive_pool, build_adaptive_pool, "t", {"sizes"}}},
      {"resample",
       {infer_resample,
        build_resample,
        "tNN",
        {"algorithm", "scale_height", "scale_width", "align_corners"}}},
      {"mean", {infer_mean, build_mean, "t", {"dims", "keep"}}},
      {"cat", {infer_cat, build_cat, "tt*", {"dim"}}},
      {"stack", {infer_stack, build_cat, "tt*", {"dim"}}},
      {"pad", {infer_pad, build_pad, "tn*", {"value"}}},
      {"roll", {infer_roll, build_roll, "t", {"shifts", "dims"}}},
      {"to", {infer_to, build_to, "t", {"dtype", "floating"}}},
      {"to_like", {infer_to, build_to, "tt"}},
  };
  const auto found = table.find(name);
  if (found == table.end()) {
    refuse("the operator '" + name + "'");
  }
  return found->second;
}

} // namespace at::native::zendnn::plan
