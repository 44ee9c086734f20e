// One layer of an LSTM. Training stays with torch: its backward kernel reads
// the workspace that its own forward kernel wrote.
#include <ATen/native/zendnn/cpu/Overrides.h>

#include <ATen/native/zendnn/Context.h>
#include <ATen/native/zendnn/NativeFunctions.h>
#include <ATen/native/zendnn/Utils.h>
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
      enabled() && !train &&
      (dtype == kFloat || (dtype == kBFloat16 && zendnn_bf16_device_check()));
  return (takes ? zendnn_rnn_layer : at::native::mkldnn_rnn_layer)(
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
}

} // namespace at::native::zendnn::cpu
