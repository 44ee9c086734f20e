#include <torch/csrc/zendnn/plan/Operators.h>

namespace at::native::zendnn::plan {

const Operator& find_operator(const std::string& name) {
  static const std::unordered_map<std::string, Operator> table{
      {"size", {infer_size, build_nothing}},
      {"numel", {infer_numel, build_nothing}},
      {"number_add", {infer_number, build_nothing}},
      {"number_sub", {infer_number, build_nothing}},
      {"number_mul", {infer_number, build_nothing}},
      {"number_floordiv", {infer_number, build_nothing}},
      {"number_remainder", {infer_number, build_nothing}},
      {"power", {infer_power, build_power}},
      {"view", {infer_view, build_view}},
      {"flatten", {infer_view, build_view}},
      {"unflatten", {infer_view, build_view}},
      {"transpose", {infer_view, build_view}},
      {"permute", {infer_view, build_view}},
      {"unsqueeze", {infer_view, build_view}},
      {"squeeze", {infer_view, build_view}},
      {"expand", {infer_view, build_view}},
      {"expand_as", {infer_view, build_view}},
      {"select", {infer_view, build_view}},
      {"slice", {infer_view, build_view}},
      {"contiguous", {infer_view, build_view}},
      {"split", {infer_split, build_split}},
      {"convolution", {infer_convolution, build_convolution}},
      {"linear", {infer_linear, build_linear}},
      {"matmul", {infer_matmul, build_matmul}},
      {"eltwise", {infer_same, build_eltwise}},
      {"nonzero", {infer_nonzero, build_nonzero}},
      {"where", {infer_where, build_where}},
      {"prelu", {infer_prelu, build_prelu}},
      {"binary", {infer_binary, build_binary}},
      {"softmax", {infer_same, build_softmax}},
      {"layer_norm", {infer_layer_norm, build_layer_norm}},
      {"rms_norm", {infer_layer_norm, build_layer_norm}},
      {"group_norm", {infer_group_norm, build_group_norm}},
      {"batch_norm", {infer_batch_norm, build_batch_norm}},
      {"attention", {infer_attention, build_attention}},
      {"embedding", {infer_embedding, build_embedding}},
      {"embedding_bag", {infer_embedding_bags, build_embedding_bags}},
      {"embedding_bags", {infer_embedding_bags, build_embedding_bags}},
      {"gather_pairs", {infer_gather_pairs, build_gather_pairs}},
      {"pairwise_dot", {infer_pairwise_dot, build_pairwise_dot}},
      {"max_pool", {infer_pool, build_pool}},
      {"avg_pool", {infer_pool, build_pool}},
      {"adaptive_avg_pool", {infer_adaptive_pool, build_adaptive_pool}},
      {"resample", {infer_resample, build_resample}},
      {"mean", {infer_mean, build_mean}},
      {"cat", {infer_cat, build_cat}},
      {"stack", {infer_stack, build_cat}},
      {"pad", {infer_pad, build_pad}},
      {"roll", {infer_roll, build_roll}},
      {"to", {infer_to, build_to}},
      {"to_like", {infer_to, build_to}},
  };
  const auto found = table.find(name);
  if (found == table.end()) {
    refuse("the operator '" + name + "'");
  }
  return found->second;
}

} // namespace at::native::zendnn::plan
