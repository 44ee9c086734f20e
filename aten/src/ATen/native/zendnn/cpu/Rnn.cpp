// One layer of an LSTM. The backward kernel reads the workspace of the forward
// kernel. torch's library cannot read our workspaces, nor ours torch's: ours
// have a leading dimension of size 1 as a mark.
#include <ATen/native/zendnn/cpu/Overrides.h>

#include <ATen/ExpandUtils.h>
#include <ATen/native/zendnn/NativeFunctions.h>
#include <ATen/native/zendnn/Operands.h>
#include <ATen/native/zendnn/cpu/Heuristics.h>
#include <ATen/native/zendnn/cpu/Row.h>
#include <ATen/ops/mkldnn_rnn_layer_backward_native.h>
#include <ATen/ops/mkldnn_rnn_layer_native.h>
#include <c10/util/Exception.h>
#include <adeep/abstract_types.hpp>

#include <algorithm>
#include <tuple>
#include <utility>

namespace at::native::zendnn::cpu {
namespace {

constexpr int64_t kGates = 4;

// In nn.LSTM's words.
void check_size(const char* what, IntArrayRef sizes, IntArrayRef wanted) {
  // The states of a layer may have a dimension for layers, too.
  const auto own = sizes.size() == wanted.size() + 1 && sizes.front() == 1
                       ? sizes.slice(1)
                       : sizes;
  if (own != wanted) {
    std::string text;
    for (const auto size : wanted) {
      text += (text.empty() ? "" : ", ") + std::to_string(size);
    }
    TORCH_CHECK(false, "Expected ", what, " size (", text, "), got ", sizes);
  }
}

// The kernels read and write memory by the sizes of the input, and check no
// other operand.
void check_layer(
    const Tensor& input,
    const Tensor& weight_ih,
    const Tensor& weight_hh,
    const Tensor& bias_ih,
    const Tensor& bias_hh,
    const Tensor& hx,
    const Tensor& cx,
    int64_t mode,
    int64_t hidden,
    bool has_biases) {
  if (mode != static_cast<int64_t>(adeep::rnn_kind::LSTM)) {
    return; // there is no such primitive, which torch's kernel says
  }
  TORCH_CHECK(
      input.dim() == 3, "Expected input to be 3D, got ", input.dim(), 'D');
  const auto rows = input.size(1), gates = kGates * hidden;
  check_size("hidden[0]", hx.sizes(), {rows, hidden});
  check_size("hidden[1]", cx.sizes(), {rows, hidden});
  check_size("weight_ih", weight_ih.sizes(), {gates, input.size(2)});
  check_size("weight_hh", weight_hh.sizes(), {gates, hidden});
  if (has_biases) {
    const auto bias = infer_size_dimvector(bias_ih.sizes(), bias_hh.sizes());
    check_size("bias", bias, {gates});
  }
}

// A layer, whoever computes it.
template <auto kRun>
std::tuple<Tensor, Tensor, Tensor, Tensor> checked_layer(
    const Tensor& input,
    const Tensor& weight_ih,
    const Tensor& weight_hh,
    const Tensor& bias_ih,
    const Tensor& bias_hh,
    const Tensor& hx,
    const Tensor& cx,
    bool reverse,
    IntArrayRef batch_sizes,
    int64_t mode,
    int64_t hidden_size,
    int64_t num_layers,
    bool has_biases,
    bool bidirectional,
    bool batch_first,
    bool train) {
  check_layer(
      input,
      weight_ih,
      weight_hh,
      bias_ih,
      bias_hh,
      hx,
      cx,
      mode,
      hidden_size,
      has_biases);
  return kRun(
      input.contiguous(),
      weight_ih,
      weight_hh,
      bias_ih,
      bias_hh,
      hx.contiguous(),
      cx.contiguous(),
      reverse,
      batch_sizes,
      mode,
      hidden_size,
      num_layers,
      has_biases,
      bidirectional,
      batch_first,
      train);
}

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

// A layer's gradient, whoever computes it.
template <auto kRun>
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>
checked_backward(
    const Tensor& input,
    const Tensor& weight_ih,
    const Tensor& weight_hh,
    const Tensor& bias_ih,
    const Tensor& bias_hh,
    const Tensor& hx,
    const Tensor& cx,
    const Tensor& output,
    const Tensor& hy,
    const Tensor& cy,
    const std::optional<Tensor>& grad_output,
    const std::optional<Tensor>& grad_hy,
    const std::optional<Tensor>& grad_cy,
    bool reverse,
    int64_t mode,
    int64_t hidden_size,
    int64_t num_layers,
    bool has_biases,
    bool train,
    bool bidirectional,
    IntArrayRef batch_sizes,
    bool batch_first,
    const Tensor& workspace) {
  check_layer(
      input,
      weight_ih,
      weight_hh,
      bias_ih,
      bias_hh,
      hx,
      cx,
      mode,
      hidden_size,
      has_biases);
  const auto rows = input.size(1);
  const DimVector outputs{input.size(0), rows, hidden_size};
  const DimVector states{rows, hidden_size};
  const auto check =
      [](const char* what, const std::optional<Tensor>& t, IntArrayRef wanted) {
        if (has(t)) {
          check_size(what, t->sizes(), wanted);
        }
      };
  check("output", output, outputs);
  check("hidden[0] after the last step", hy, states);
  check("hidden[1] after the last step", cy, states);
  check("gradient of the output", grad_output, outputs);
  check("gradient of hidden[0]", grad_hy, states);
  check("gradient of hidden[1]", grad_cy, states);
  return kRun(
      input.contiguous(),
      weight_ih,
      weight_hh,
      bias_ih,
      bias_hh,
      hx.contiguous(),
      cx.contiguous(),
      output,
      hy,
      cy,
      grad_output,
      grad_hy,
      grad_cy,
      reverse,
      mode,
      hidden_size,
      num_layers,
      has_biases,
      train,
      bidirectional,
      batch_sizes,
      batch_first,
      workspace);
}

} // namespace

void list_recurrences(torch::Library& m) {
  add_rows<
      Row<"aten::mkldnn_rnn_layer", // 1.0-1.0, .97-.99
          Needs::primitives,
          kWhyNotLayer,
          checked_layer<kLayer>,
          checked_layer<at::native::mkldnn_rnn_layer>>,
      Row<"aten::mkldnn_rnn_layer_backward",
          Needs::nothing,
          kWhyNotBackward,
          checked_backward<kBackward>,
          checked_backward<at::native::mkldnn_rnn_layer_backward>>>(m);
}

} // namespace at::native::zendnn::cpu
