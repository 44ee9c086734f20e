// One layer of an LSTM. The backward kernel reads the workspace that the
// forward kernel wrote, which torch's library cannot read of ours nor ours of
// torch's: our workspaces are marked by a leading dimension of size one.
#include <ATen/native/zendnn/cpu/Overrides.h>

#include <ATen/native/zendnn/Context.h>
#include <ATen/native/zendnn/NativeFunctions.h>
#include <ATen/native/zendnn/Operands.h>
#include <ATen/native/zendnn/Utils.h>
#include <ATen/native/zendnn/cpu/LeftToTorch.h>
#include <ATen/ops/mkldnn_rnn_layer_backward_native.h>
#include <ATen/ops/mkldnn_rnn_layer_native.h>

namespace at::native::zendnn::cpu {

std::tuple<Tensor, Tensor, Tensor, Tensor> rnn_layer(
    const Tensor& input,
    const Tensor& weight0,
    const Tensor& weight1,
    const Tensor& weight2,
    const Tensor& weight3,
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
  const auto dtype = input.scalar_type();
  const bool takes =
      enabled() && takes_dtype(dtype) && !leaves_recurrence(dtype);
  auto result = (takes ? zendnn_rnn_layer : at::native::mkldnn_rnn_layer)(
      input,
      weight0,
      weight1,
      weight2,
      weight3,
      hx,
      cx,
      reverse,
      batch_sizes,
      mode,
      hidden_size,
      num_layers,
      has_biases,
      bidirectional,
      batch_first,
      train);
  auto& workspace = std::get<3>(result);
  if (takes && workspace.defined()) {
    workspace = workspace.unsqueeze(0);
  }
  return result;
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>
rnn_layer_backward(
    const Tensor& input,
    const Tensor& weight1,
    const Tensor& weight2,
    const Tensor& weight3,
    const Tensor& weight4,
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
  const bool ours = workspace.dim() == 2;
  return (
      ours ? zendnn_rnn_layer_backward : at::native::mkldnn_rnn_layer_backward)(
      input,
      weight1,
      weight2,
      weight3,
      weight4,
      hx,
      cx,
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
      ours ? workspace.squeeze(0) : workspace);
}

} // namespace at::native::zendnn::cpu
