// GRUs for inference, one layer at a time; torch's own kernel runs them step by
// step. torch's GRU resets after the linear part: ZenDNN calls it the
// linear-before-reset GRU.
#include <ATen/native/zendnn/cpu/Overrides.h>

#include <ATen/Parallel.h>
#include <ATen/native/zendnn/Operands.h>
#include <ATen/native/zendnn/Primitives.h>
#include <ATen/native/zendnn/Utils.h>
#include <ATen/native/zendnn/ZENDNNCommon.h>
#include <ATen/native/zendnn/cpu/Composites.h>
#include <ATen/native/zendnn/cpu/Heuristics.h>
#include <ATen/native/zendnn/cpu/Row.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <tuple>

namespace at::native::zendnn::cpu {
namespace {

using ::zendnn::lbr_gru_forward;
using ::zendnn::memory;

Reason why_not_gru(
    const Tensor& input,
    const Tensor& hx,
    TensorList params,
    bool has_biases,
    int64_t num_layers,
    double dropout,
    bool train,
    bool bidirectional,
    bool batch_first) {
  const auto dtype = input.scalar_type();
  if (train && dropout != 0 && num_layers > 1) {
    return "dropout";
  }
  if (is_watched() || !is_unrecorded(input) || !is_unrecorded(hx)) {
    return why::kWatched;
  }
  if (!takes_dtype(dtype)) {
    return why::kType;
  }
  if (const auto reason = why_leave_recurrence(dtype)) {
    return reason;
  }
  if (hx.scalar_type() != dtype) {
    return why::kTypes;
  }
  if (input.dim() != 3 || hx.dim() != 3 || num_layers < 1) {
    return why::kSizes;
  }
  if (input.numel() == 0 || hx.numel() == 0) {
    return why::kEmpty;
  }
  const int64_t directions = bidirectional ? 2 : 1;
  const int64_t each = has_biases ? 4 : 2;
  // With more weights, torch's matrix products are faster.
  const auto most = value_of(Threshold::gru_weights);
  const auto hidden = hx.size(2);
  // With fewer steps, packing the weights costs more than it saves.
  if (input.size(batch_first ? 1 : 0) < value_of(Threshold::gru_steps)) {
    return "too few steps to gain";
  }
  if (hx.size(0) != num_layers * directions ||
      hx.size(1) != input.size(batch_first ? 0 : 1) ||
      static_cast<int64_t>(params.size()) != num_layers * directions * each) {
    return why::kSizes;
  }
  for (int64_t i = 0; i < static_cast<int64_t>(params.size()); ++i) {
    const auto& t = params[i];
    const auto layer = i / (each * directions), kind = i % each;
    const auto inner = kind == 1    ? hidden
                       : layer == 0 ? input.size(2)
                                    : hidden * directions;
    if (!is_unrecorded(t)) {
      return why::kWatched;
    }
    if (3 * hidden * (inner + hidden) > most) {
      return "weights so many that torch is as fast";
    }
    if (t.scalar_type() != dtype || t.dim() != (kind < 2 ? 2 : 1) ||
        t.size(0) != 3 * hidden || (kind < 2 && t.size(1) != inner)) {
      return why::kParameter;
    }
  }
  return nullptr;
}

// Steps, rows, inputs, hidden, reverse, dtype, threads.
using Key =
    std::tuple<int64_t, int64_t, int64_t, int64_t, bool, ScalarType, int>;

BoundPrimitive make_primitive(const Key& key) {
  using tag = memory::format_tag;
  const auto [steps, rows, inputs, hidden, reverse, dtype, threads] = key;
  const auto type = get_zendnn_dtype(dtype);
  const memory::desc state({1, 1, rows, hidden}, type, tag::ldnc);
  const lbr_gru_forward::primitive_desc desc(
      adeep::engine::cpu_engine(),
      ::zendnn::prop_kind::forward_inference,
      reverse ? ::zendnn::rnn_direction::unidirectional_right2left
              : ::zendnn::rnn_direction::unidirectional_left2right,
      memory::desc({steps, rows, inputs}, type, tag::tnc),
      state,
      memory::desc({1, 1, inputs, 3, hidden}, type, tag::any),
      memory::desc({1, 1, hidden, 3, hidden}, type, tag::any),
      memory::desc({1, 1, 4, hidden}, memory::data_type::f32, tag::ldgo),
      memory::desc({steps, rows, hidden}, type, tag::tnc),
      state);
  return {
      lbr_gru_forward(desc),
      {{ZENDNN_ARG_SRC_LAYER, desc.src_layer_desc()},
       {ZENDNN_ARG_SRC_ITER, desc.src_iter_desc()},
       {ZENDNN_ARG_WEIGHTS_LAYER, desc.weights_layer_desc()},
       {ZENDNN_ARG_WEIGHTS_ITER, desc.weights_iter_desc()},
       {ZENDNN_ARG_BIAS, desc.bias_desc()},
       {ZENDNN_ARG_DST_LAYER, desc.dst_layer_desc()},
       {ZENDNN_ARG_DST_ITER, desc.dst_iter_desc()}}};
}

// torch's order of gates is reset, update, new; ZenDNN's is update, reset, new.
Tensor in_order(const Tensor& gates) {
  const auto parts = gates.chunk(3);
  return at::cat({parts[1], parts[0], parts[2]});
}

Tensor biases_of(const Tensor& input, const Tensor& hidden) {
  const auto from_input = in_order(input.to(kFloat));
  const auto from_hidden = in_order(hidden.to(kFloat));
  auto all = at::cat({from_input, from_hidden.chunk(3)[2]});
  const auto both = 2 * (from_input.size(0) / 3);
  all.narrow(0, 0, both).add_(from_hidden.narrow(0, 0, both));
  return all;
}

// The weights in the primitive's preferred layout.
Tensor packed(const Tensor& weight, const memory::desc& wanted) {
  const auto plain = in_order(weight);
  auto result = at::empty(
      {static_cast<int64_t>(wanted.get_size())}, weight.options().dtype(kByte));
  reorder_now(
      {wanted.get_dims(), wanted.get_data_type(), memory::format_tag::ldgoi},
      plain.const_data_ptr(),
      wanted,
      result.mutable_data_ptr());
  return result;
}

// One direction of one layer: x is (steps, rows, inputs), and hy is written.
Tensor run_layer(
    const Tensor& x,
    const Tensor& hx,
    TensorList params,
    bool has_biases,
    bool reverse,
    const Tensor& hy) {
  const auto hidden = hx.size(1);
  thread_local Recent<Key, BoundPrimitive> recent;
  const auto& primitive = recent.find(
      {x.size(0),
       x.size(1),
       x.size(2),
       hidden,
       reverse,
       x.scalar_type(),
       at::get_num_threads()},
      make_primitive);
  const auto layer_weights =
      packed(params[0], primitive.desc(ZENDNN_ARG_WEIGHTS_LAYER));
  const auto iter_weights =
      packed(params[1], primitive.desc(ZENDNN_ARG_WEIGHTS_ITER));
  const auto bias = has_biases
                        ? biases_of(params[2], params[3])
                        : at::zeros({4 * hidden}, x.options().dtype(kFloat));
  auto out = at::empty({x.size(0), x.size(1), hidden}, x.options());
  primitive.run(
      {{ZENDNN_ARG_SRC_LAYER, x.const_data_ptr()},
       {ZENDNN_ARG_SRC_ITER, hx.const_data_ptr()},
       {ZENDNN_ARG_WEIGHTS_LAYER, layer_weights.const_data_ptr()},
       {ZENDNN_ARG_WEIGHTS_ITER, iter_weights.const_data_ptr()},
       {ZENDNN_ARG_BIAS, bias.const_data_ptr()},
       {ZENDNN_ARG_DST_LAYER, out.mutable_data_ptr()},
       {ZENDNN_ARG_DST_ITER, hy.mutable_data_ptr()}});
  return out;
}

std::tuple<Tensor, Tensor> run_gru(
    const Tensor& input,
    const Tensor& hx,
    TensorList params,
    bool has_biases,
    int64_t num_layers,
    double /*dropout*/,
    bool /*train*/,
    bool bidirectional,
    bool batch_first) {
  auto x = (batch_first ? input.transpose(0, 1) : input).contiguous();
  const auto states = hx.contiguous();
  auto hy = at::empty(states.sizes(), states.options());
  const int64_t directions = bidirectional ? 2 : 1;
  const size_t each = has_biases ? 4 : 2;
  for (int64_t i = 0; i < num_layers * directions; i += directions) {
    const auto run = [&](int64_t index, bool reverse) {
      return run_layer(
          x,
          states[index],
          params.slice(index * each, each),
          has_biases,
          reverse,
          hy[index]);
    };
    const auto forward = run(i, false);
    x = bidirectional ? at::cat({forward, run(i + 1, true)}, -1) : forward;
  }
  return {batch_first ? x.transpose(0, 1) : x, hy};
}

} // namespace

void list_grus(torch::Library& m) {
  add_rows<
      Row<"aten::gru.input", // .78-.99, .23-.82
          Needs::primitives,
          why_not_gru,
          run_gru,
          static_cast<decltype(&run_gru)>(at::native::gru)>>(m);
}

} // namespace at::native::zendnn::cpu
