#include <torch/csrc/zendnn/optimize_frozen.h>

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/frozen_ops_to_zendnn.h>

#include <algorithm>
#include <unordered_map>

namespace at::native::zendnn {
namespace {

using torch::jit::Node;

bool is_not_dilated(const Node* node) {
  const auto dilation = torch::jit::toIValue(node->namedInput("dilation"));
  if (!dilation || !dilation->isIntList()) {
    return false;
  }
  const auto values = dilation->toIntVector();
  return std::all_of(
      values.begin(), values.end(), [](int64_t value) { return value == 1; });
}

bool has_no_divisor(const Node* node) {
  const auto divisor =
      torch::jit::toIValue(node->namedInput("divisor_override"));
  return divisor && divisor->isNone();
}

bool is_exact_gelu(const Node* node) {
  const auto approximate =
      torch::jit::toIValue(node->namedInput("approximate"));
  return approximate && approximate->isString() &&
         approximate->toStringRef() == "none";
}

bool is_affine_inference(const Node* node) {
  const auto weight = torch::jit::toIValue(node->namedInput("weight"));
  const auto bias = torch::jit::toIValue(node->namedInput("bias"));
  const auto training = torch::jit::toIValue(node->namedInput("training"));
  return weight && weight->isTensor() && bias && bias->isTensor() && training &&
         training->isBool() && !training->toBool();
}

} // namespace

void optimize_frozen(std::shared_ptr<torch::jit::Graph>& graph) {
  torch::jit::ConvertFrozenOpsToZENDNN(graph);
}

bool takes_arguments(const Node* node) {
  static const std::unordered_map<c10::Symbol, bool (*)(const Node*)> checks{
      {c10::aten::max_pool2d, is_not_dilated},
      {c10::aten::max_pool3d, is_not_dilated},
      {c10::aten::avg_pool2d, has_no_divisor},
      {c10::aten::avg_pool3d, has_no_divisor},
      {c10::aten::gelu, is_exact_gelu},
      {c10::aten::batch_norm, is_affine_inference},
  };
  const auto check = checks.find(node->kind());
  return check == checks.end() || check->second(node);
}

} // namespace at::native::zendnn
