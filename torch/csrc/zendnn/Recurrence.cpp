// zendnn::recurrence: an LSTM, a GRU or an RNN of compiled and exported models
// as one call, which runs what eager mode runs. torch would trace GRUs and RNNs
// step by step, and an LSTM layer by layer.
#include <ATen/native/zendnn/Operands.h>
#include <torch/csrc/zendnn/Tags.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gru.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/rnn_relu.h>
#include <ATen/ops/rnn_tanh.h>
#include <torch/library.h>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <vector>

namespace at::native::zendnn {
namespace {

using Tensors = std::vector<Tensor>;

constexpr const char* kName = "zendnn::recurrence";

// The output, and the states after the last step.
Tensors run(
    std::string_view kind,
    const Tensor& input,
    TensorList states,
    TensorList params,
    bool has_biases,
    int64_t num_layers,
    bool bidirectional,
    bool batch_first) {
  const auto with = [&](auto* recurrence, const auto& state) -> Tensors {
    const auto result = recurrence(
        input,
        state,
        params,
        has_biases,
        num_layers,
        /*dropout=*/0.,
        /*train=*/false,
        bidirectional,
        batch_first);
    return std::apply(
        [](const auto&... results) { return Tensors{results...}; }, result);
  };
  if (kind == "lstm") {
    using Lstm = std::tuple<Tensor, Tensor, Tensor>(
        const Tensor&,
        TensorList,
        TensorList,
        bool,
        int64_t,
        double,
        bool,
        bool,
        bool);
    return with(static_cast<Lstm*>(at::lstm), states);
  }
  TORCH_CHECK(states.size() == 1, kName, ": a ", kind, " has one state");
  using OfOneState = std::tuple<Tensor, Tensor>(
      const Tensor&,
      const Tensor&,
      TensorList,
      bool,
      int64_t,
      double,
      bool,
      bool,
      bool);
  if (kind == "gru") {
    return with(static_cast<OfOneState*>(at::gru), states[0]);
  }
  if (kind == "rnn_tanh") {
    return with(static_cast<OfOneState*>(at::rnn_tanh), states[0]);
  }
  TORCH_CHECK_VALUE(kind == "rnn_relu", kName, ": there is no ", kind);
  return with(static_cast<OfOneState*>(at::rnn_relu), states[0]);
}

Tensor empty_meta(SymIntArrayRef sizes, const Tensor& like) {
  return at::empty_symint(
      sizes, TensorOptions(like.scalar_type()).device(kMeta));
}

// What the results look like.
Tensors meta(
    std::string_view /*kind*/,
    const Tensor& input,
    TensorList states,
    TensorList /*params*/,
    bool /*has_biases*/,
    int64_t /*num_layers*/,
    bool bidirectional,
    bool batch_first) {
  TORCH_CHECK(
      input.dim() == 3 && !states.empty() && states[0].dim() == 3,
      kName,
      ": the input and the states have three dimensions");
  const auto steps = input.sym_size(batch_first ? 1 : 0);
  const auto rows = input.sym_size(batch_first ? 0 : 1);
  const auto columns = states[0].sym_size(2) * (bidirectional ? 2 : 1);
  const auto output = empty_meta({steps, rows, columns}, input);
  Tensors results{batch_first ? output.transpose(0, 1) : output};
  for (const auto& state : states) {
    results.push_back(empty_meta(state.sym_sizes(), state));
  }
  return results;
}

Tensors autograd(
    std::string_view kind,
    const Tensor& input,
    TensorList states,
    TensorList params,
    bool has_biases,
    int64_t num_layers,
    bool bidirectional,
    bool batch_first) {
  const auto any = [](TensorList tensors) {
    return std::any_of(tensors.begin(), tensors.end(), needs_grad);
  };
  if (at::GradMode::is_enabled() &&
      (needs_grad(input) || any(states) || any(params))) {
    return run(
        kind,
        input,
        states,
        params,
        has_biases,
        num_layers,
        bidirectional,
        batch_first);
  }
  static const auto handle = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow(kName, "")
                                 .typed<decltype(meta)>();
  const at::AutoDispatchBelowADInplaceOrView below;
  return handle.call(
      kind,
      input,
      states,
      params,
      has_biases,
      num_layers,
      bidirectional,
      batch_first);
}

TORCH_LIBRARY_FRAGMENT(zendnn, m) {
  m.def(
      "recurrence(str kind, Tensor input, Tensor[] states, Tensor[] params, "
      "bool has_biases, int num_layers, bool bidirectional, bool batch_first) "
      "-> Tensor[]",
      {at::Tag::pt2_compliant_tag, strides_kept<at::Tag>()});
  const auto at = [&m](c10::DispatchKey key, auto* run) {
    m.impl("recurrence", torch::dispatch(key, run));
  };
  at(c10::DispatchKey::CPU, run);
  at(c10::DispatchKey::Meta, meta);
  at(c10::DispatchKey::Autograd, autograd);
  at(c10::DispatchKey::FuncTorchBatched, run);
  at(c10::DispatchKey::Tracer, run);
}

} // namespace
} // namespace at::native::zendnn
