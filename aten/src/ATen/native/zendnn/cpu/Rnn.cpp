// One layer of an LSTM. The backward kernel reads the workspace of the forward
// kernel. torch's library cannot read our workspaces, nor ours torch's: ours
// have a leading dimension of size 1 as a mark.
#include <ATen/native/zendnn/cpu/Overrides.h>

#include <ATen/native/zendnn/NativeFunctions.h>
#include <ATen/native/zendnn/Operands.h>
#include <ATen/native/zendnn/cpu/LeftToTorch.h>
#include <ATen/native/zendnn/cpu/Row.h>
#include <ATen/ops/mkldnn_rnn_layer_backward_native.h>
#include <ATen/ops/mkldnn_rnn_layer_native.h>

#include <tuple>
#include <utility>

namespace at::native::zendnn::cpu {
namespace {

constexpr auto kWhyNotLayer = [](const Tensor& input,
                                 const auto&... /*others*/) -> Reason {
  const auto dtype = input.scalar_type();
  return takes_dtype(dtype) ? why_leave_recurrence(dtype) : why::kType;
};

constexpr auto kLayer = [](const auto&... operands) {
  auto result = zendnn_rnn_layer(operands...);
  auto& workspace = std::get<3>(result);
  if (workspace.defined()) {
    workspace = workspace.unsqueeze(0);
  }
  return result;
};

// The last operand is the workspace.
constexpr auto kWhyNotBackward = [](const auto&... operands) -> Reason {
  const Tensor& workspace =
      std::get<sizeof...(operands) - 1>(std::tie(operands...));
  return workspace.dim() == 2 ? nullptr
                              : "a workspace that torch's kernel wrote";
};

constexpr auto kBackward = [](const auto&... operands) {
  const auto all = std::tie(operands...);
  return [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    return zendnn_rnn_layer_backward(
        std::get<kIndex>(all)..., std::get<sizeof...(kIndex)>(all).squeeze(0));
  }(std::make_index_sequence<sizeof...(operands) - 1>());
};

} // namespace

void list_recurrences(torch::Library& m) {
  add_rows<
      Row<"aten::mkldnn_rnn_layer", // 1.0-1.0, .97-.99
          Needs::primitives,
          kWhyNotLayer,
          kLayer,
          at::native::mkldnn_rnn_layer>,
      Row<"aten::mkldnn_rnn_layer_backward",
          Needs::nothing,
          kWhyNotBackward,
          kBackward,
          at::native::mkldnn_rnn_layer_backward>>(m);
}

} // namespace at::native::zendnn::cpu
