// The operators that plans refuse for some shapes, in torch's own functions.
#include <torch/csrc/zendnn/plan/describe/Functions.h>
#include <torch/csrc/zendnn/plan/describe/Operators.h>
#include <torch/csrc/zendnn/plan/run/Interpreter.h>
#include <torch/csrc/zendnn/plan/run/TorchFallback.h>

#include <ATen/ATen.h>
#include <ATen/TensorIndexing.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>
#include <new>
#include <optional>
#include <string_view>

namespace at::native::zendnn::plan {
namespace {

using Compute = Tensor (*)(const Node&, const Operands&);

// Calls torch's operator of this name; arguments that are not given have their
// defaults.
Tensor call(const std::string& name, std::vector<c10::IValue> arguments) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
      ("aten::" + name).c_str(), "");
  const auto& known = op.schema().arguments();
  for (auto i = arguments.size(); i < known.size(); ++i) {
    arguments.push_back(known[i].default_value().value());
  }
  op.callBoxed(arguments);
  return arguments.front().toTensor();
}

Tensor scaled(const Tensor& x, double factor, double addend) {
  const auto product = factor == 1 ? x : at::mul(x, factor);
  return addend == 0 ? product : at::add(product, addend);
}

Tensor convolution(const Node& node, const Operands& given) {
  auto x = given[0].toTensor();
  const auto weight = given[1].toTensor();
  const auto spatial = static_cast<size_t>(weight.dim() - 2);
  if (x.dim() != weight.dim()) {
    // Passes have folded along dimension 1, here no channels.
    refuse("a convolution of a tensor without a batch dimension");
  }
  const auto& of = node.as<attr::convolution>();
  auto padding = spread(of.padding, spatial, 0);
  if (!of.padding_end.empty()) {
    const auto end = spread(of.padding_end, spatial, 0);
    Dims pads; // the last dimension first
    for (size_t i = spatial; i-- > 0;) {
      pads.insert(pads.end(), {std::exchange(padding[i], 0), end[i]});
    }
    x = at::constant_pad_nd(x, pads);
  }
  return at::convolution(
      x,
      weight,
      given[2].toOptional<Tensor>(),
      spread(of.stride, spatial, 1),
      padding,
      spread(of.dilation, spatial, 1),
      of.transposed,
      spread(of.output_padding, spatial, 0),
      of.groups);
}

// Promotes nothing, so that torch's own error names operands of two dtypes.
Tensor linear(const Node& node, const Operands& given) {
  auto x = given[0].toTensor(), weight = given[1].toTensor();
  const auto bias = given[2].toOptional<Tensor>();
  const auto dtype = node.as<attr::linear>().dtype;
  if (!dtype) {
    return at::linear(x, weight, bias);
  }
  type_of(*dtype); // which refuses what no layer makes
  // A pass has rounded both factors of a layer, but not its bias.
  if (bias && bias->scalar_type() == dtype &&
      x.scalar_type() == weight.scalar_type()) {
    x = x.to(*dtype);
    weight = weight.to(*dtype);
  }
  return at::linear(x, weight, bias).to(*dtype);
}

// matmul or prelu.
Tensor of_two(const Node& node, const Operands& given) {
  return call(name_of(node.op), {given[0], given[1]});
}

// softmax(q·kᵀ + mask)·v, as the model spells it out.
Tensor
spelled_out_attention(const Node& node, const Operands& given, double scale) {
  const auto q = given[0].toTensor(), k = given[1].toTensor();
  const auto mask = given[3].toOptional<Tensor>(),
             chosen = given[4].toOptional<Tensor>();
  if (node.as<attr::attention>().causal || node.as<attr::attention>().grouped ||
      (mask && mask->scalar_type() != q.scalar_type())) {
    refuse("an attention that no model spells out");
  }
  auto scores = scaled(at::matmul(q, k.mT()), scale, 0);
  if (chosen) {
    scores = at::masked_fill(
        scores,
        node.as<attr::attention>().fill_where ? *chosen : chosen->logical_not(),
        node.as<attr::attention>().fill);
  }
  if (mask) {
    const auto keeps = first_if(node.as<attr::attention>().in_place);
    scores = combine(kernels::Binary::add, scores, *mask, keeps);
  }
  return at::matmul(at::softmax(scores, -1), given[2].toTensor());
}

// Joins a mask with the causal one, since torch 2.15 takes only one of them.
Tensor with_causal(const Tensor& mask, const Tensor& q, const Tensor& k) {
  const auto seen =
      at::ones({q.size(-2), k.size(-2)}, q.options().dtype(kBool)).tril();
  return mask.scalar_type() == kBool
             ? mask.logical_and(seen)
             : mask.masked_fill(
                   seen.logical_not(),
                   -std::numeric_limits<double>::infinity());
}

Tensor attention(const Node& node, const Operands& given) {
  const auto q = given[0].toTensor();
  const auto stated = node.as<attr::attention>().scale;
  const auto scale =
      stated == 0 ? 1 / std::sqrt(static_cast<double>(q.size(-1))) : stated;
  Tensor made;
  if (node.as<attr::attention>().additive) {
    made = spelled_out_attention(node, given, scale);
  } else if (!given[4].isNone()) {
    refuse("an attention that no model spells out");
  } else {
    const auto k = given[1].toTensor();
    auto mask = given[3].toOptional<Tensor>();
    bool causal = node.as<attr::attention>().causal;
    if (mask && causal) {
      mask = with_causal(*mask, q, k);
      causal = false;
    }
    made = at::scaled_dot_product_attention(
        q,
        k,
        given[2].toTensor(),
        mask,
        /*dropout_p=*/0,
        causal,
        stated == 0 ? std::nullopt : std::optional(scale),
        node.as<attr::attention>().grouped);
  }
  return node.as<attr::attention>().swapped ? made.transpose(1, 2).contiguous()
                                            : made;
}

Tensor rope(const Node& node, const Operands& given) {
  const auto x = given[0].toTensor();
  const auto cos = given[1].toTensor(), sin = given[2].toTensor();
  const auto rotary = cos.size(-1);
  const auto turned = x.narrow(-1, 0, rotary);
  const auto pairs = node.as<attr::rope>().interleaved
                         ? turned.unflatten(-1, {-1, 2})
                         : turned.unflatten(-1, {2, -1}).mT();
  const auto quarter = at::stack(
                           {pairs.select(-1, 1).neg(), pairs.select(-1, 0)},
                           node.as<attr::rope>().interleaved ? -1 : -2)
                           .flatten(-2);
  const auto made = at::add(at::mul(turned, cos), at::mul(quarter, sin));
  const auto kept = x.narrow(-1, rotary, x.size(-1) - rotary);
  return kept.size(-1) == 0 ? made : at::cat({made, kept}, -1);
}

// gather_pairs, or pairwise_dot, which gathers products.
Tensor gather_pairs(const Node& node, const Operands& given) {
  const auto x = given[0].toTensor();
  const auto from = node.op == Op::pairwise_dot ? at::matmul(x, x.mT()) : x;
  return from.index(
      {indexing::Ellipsis, given[1].toTensor(), given[2].toTensor()});
}

// One number of a window stands for all spatial dimensions.
Tensor pool(const Node& node, const Operands& given) {
  const auto x = given[0].toTensor();
  const bool adaptive = node.op == Op::adaptive_avg_pool;
  const bool max = node.op == Op::max_pool;
  const auto& of = node.as<attr::pool>();
  const auto& window = adaptive ? of.sizes : of.kernel;
  const auto spatial =
      window.size() > 1
          ? window.size()
          : static_cast<size_t>(std::max<int64_t>(x.dim() - 2, 1));
  std::vector<c10::IValue> arguments{x, spread(window, spatial, 1)};
  if (!adaptive) {
    arguments.emplace_back(of.stride);
    arguments.emplace_back(spread(of.padding, spatial, 0));
    if (max) {
      arguments.emplace_back(spread(of.dilation, spatial, 1));
    }
    arguments.emplace_back(of.ceil);
    if (!max) {
      arguments.emplace_back(of.include_pad);
    }
  }
  return call(
      name_of(node.op) + std::to_string(spatial) + "d", std::move(arguments));
}

Tensor resample(const Node& node, const Operands& given) {
  const auto x = given[0].toTensor();
  const double scales[] = {
      node.as<attr::resample>().scale_height,
      node.as<attr::resample>().scale_width};
  std::optional<double> factors[2];
  Dims sizes;
  for (const size_t i : {0, 1}) {
    if (scales[i] > 0) {
      factors[i] = scales[i];
    }
    const auto whole = static_cast<double>(x.sizes()[2 + i]) * scales[i];
    sizes.push_back(
        given[1 + i].isNone() ? static_cast<int64_t>(std::floor(whole))
                              : given[1 + i].toInt());
  }
  const auto algorithm = node.as<attr::resample>().algorithm;
  if (algorithm == kernels::Resampling::nearest) {
    return at::upsample_nearest2d(x, sizes, factors[0], factors[1]);
  }
  if (algorithm != kernels::Resampling::linear || x.dim() != 4) {
    refuse("a resampling that is neither nearest nor bilinear");
  }
  const bool align = node.as<attr::resample>().align_corners;
  return at::upsample_bilinear2d(x, sizes, align, factors[0], factors[1]);
}

Tensor pad(const Node& node, const Operands& given) {
  Dims pads;
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    pads.push_back(given[i].toInt());
  }
  return at::constant_pad_nd(
      given[0].toTensor(), pads, node.as<attr::pad>().value);
}

// Null for an operator that is refused for its types, or only where torch
// refuses it, too.
Compute find_compute(Op op) {
  switch (op) {
    case Op::convolution:
      return convolution;
    case Op::linear:
      return linear;
    case Op::matmul:
    case Op::prelu:
      return of_two;
    case Op::attention:
      return attention;
    case Op::rope:
      return rope;
    case Op::gather_pairs:
    case Op::pairwise_dot:
      return gather_pairs;
    case Op::max_pool:
    case Op::avg_pool:
    case Op::adaptive_avg_pool:
      return pool;
    case Op::resample:
      return resample;
    case Op::pad:
      return pad;
    default:
      return nullptr;
  }
}

bool is_computed(const Node& node) {
  const auto& op = row_of(node.op);
  return op.results != Results::number && !op.is_view;
}

bool is_tensor(const Values& values, const Operand& operand) {
  return operand.kind == Operand::Kind::value &&
         !values.is_number(operand.index);
}

// The node's operands, of which `find` makes the tensors.
template <typename Find>
Operands operands_of(const Values& values, const Node& node, const Find& find) {
  Operands given(std::max(node.inputs.size(), kMostOperands));
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const auto& operand = node.inputs[i];
    if (is_tensor(values, operand)) {
      given[i] = find(operand.index);
    } else if (operand) {
      given[i] = values.number(operand);
    }
  }
  return given;
}

// Passes' rewrites are only valid for the types that they assumed: one type of
// all floating-point operands, and of those of post-ops.
void check_types(const Values& values, const Node& node) {
  const auto dtype = values.dtype(tensor(node, 0));
  type_of(dtype);
  const auto own = row_of(node.op).operands.size();
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (is_tensor(values, node.inputs[i])) {
      const auto other = values.dtype(node.inputs[i].index);
      if (other != dtype && (c10::isFloatingType(other) || i >= own)) {
        refuse(node.fallback->reason);
      }
    }
  }
}

// A tensor of the value's type: its constant, or zeros.
Tensor stand_in(const Values& values, int64_t value) {
  if (const auto* constant = values.constant(value)) {
    return *constant;
  }
  auto spec = values.spec(value);
  if (!is_compact(spec)) {
    spec.strides = row_major_strides(spec.sizes);
  }
  return zeros(spec);
}

// torch has no type of its own for what its allocator of the CPU throws.
bool is_about_memory(const c10::Error& error) {
  return std::string_view(error.what_without_backtrace())
             .find("DefaultCPUAllocator") != std::string_view::npos;
}

bool is_channels_last(const TensorSpec& spec) {
  const auto& [sizes, strides, dtype] = spec;
  return sizes.size() >= 4 && sizes.size() <= 5 &&
         !is_row_major(sizes, strides) &&
         strides == channels_last_strides(sizes);
}

memory::desc layout_of(const TensorSpec& spec) {
  return {spec.sizes, type_of(spec.dtype), spec.strides};
}

// A value in a plan's memory.
struct View {
  Ref ref;
  TensorSpec spec;

  Tensor in(const Frame& frame) const {
    return at::from_blob(frame.at(ref), spec.sizes, spec.strides, spec.dtype);
  }
};

// As torch would have it: how a tensor lies decides which kernel torch takes,
// and so how it rounds.
Place as_in_torch(Builder& builder, int64_t value) {
  const auto& spec = builder.spec(value);
  if (is_channels_last(spec)) {
    return {
        .ref = builder.in_layout(value, layout_of(spec)),
        .strides = spec.strides};
  }
  return is_row_major(spec.sizes, spec.strides) ? builder.dense(value)
                                                : builder.strided(value);
}

} // namespace

bool is_in_torch(Op op) {
  return find_compute(op) != nullptr;
}

Tensor compute(const Node& node, const Operands& given) {
  std::optional<route::Decided> decided;
  if (node.fallback) {
    const auto& fallback = *node.fallback;
    decided.emplace(
        fallback.by_route ? route::Says::torch : route::Says::zendnn);
  }
  return with_post_ops(node, find_compute(node.op)(node, given), given);
}

Tensor with_post_ops(const Node& node, Tensor made, const Operands& given) {
  for (const auto& post : node.post) {
    made = post.is_binary() ? combine(
                                  post.combination,
                                  made,
                                  given[post.operand].toTensor(),
                                  post.keeps)
                            : apply(post.function, made, post.alpha, post.beta);
  }
  return made;
}

void check_fits(const Tensor& result, const Tensor& target) {
  TORCH_CHECK(
      result.sizes() == target.sizes(),
      "output with shape ",
      target.sizes(),
      " doesn't match the broadcast shape ",
      result.sizes());
}

Tensor combine(
    kernels::Binary function,
    const Tensor& a,
    const Tensor& b,
    Keeps keeps) {
  auto result = row_of(function).in_torch(a, b);
  if (keeps != Keeps::neither) {
    check_fits(result, keeps == Keeps::first ? a : b);
  }
  return result;
}

Tensor
apply(kernels::Eltwise function, const Tensor& x, double alpha, double beta) {
  const auto in_torch = row_of(function).in_torch;
  return (in_torch == nullptr ? scaled : in_torch)(x, alpha, beta);
}

bool is_compact(const TensorSpec& spec) {
  return span(spec.sizes, spec.strides) <= 4 * count(spec.sizes);
}

void fall_back(Description& region, const RefusedNode& refused) {
  auto& nodes = region.nodes;
  auto& node = nodes[refused.node];
  const auto falls_back = [](const Node& it) { return it.fallback != nullptr; };
  const auto first = std::find_if(nodes.begin(), nodes.end(), falls_back);
  const std::string reason =
      first == nodes.end() ? refused.what() : first->fallback->reason;
  if (node.fallback || !is_in_torch(node.op)) {
    refuse(reason);
  }
  node.fallback =
      std::make_shared<Fallback>(Fallback{node.label, refused.what()});
  if (2 * std::count_if(nodes.begin(), nodes.end(), falls_back) >
      std::count_if(nodes.begin(), nodes.end(), is_computed)) {
    refuse(reason);
  }
}

size_t fall_back_by_route(
    Description& region,
    const Values& values,
    const route::Moment& at) {
  route::Region route(at);
  for (size_t i = 0; i < region.nodes.size(); ++i) {
    auto& node = region.nodes[i];
    if (!is_computed(node)) {
      continue;
    }
    route::Region::Shapes shapes;
    for (const auto value : node.reads()) {
      if (!values.is_number(value)) {
        shapes.emplace_back(values.sizes(value));
      }
    }
    if (route.leaves_node(node.label, shapes)) {
      if (!node.fallback) {
        fall_back(region, {route::kReason, static_cast<int64_t>(i)});
      }
      node.fallback->by_route = true;
    }
  }
  return route.calls();
}

void infer_by_torch(Values& values, const Node& node) {
  auto& fallback = *node.fallback;
  auto& result = fallback.result;
  if (result.dtype == c10::ScalarType::Undefined) {
    check_types(values, node);
    try {
      const auto given = operands_of(
          values, node, [&](int64_t value) { return stand_in(values, value); });
      result = spec_of(compute(node, given));
      const auto start = std::chrono::steady_clock::now();
      compute(node, given);
      fallback.milliseconds = std::chrono::duration<double, std::milli>(
                                  std::chrono::steady_clock::now() - start)
                                  .count();
    } catch (const c10::Error& error) {
      if (is_about_memory(error)) {
        throw std::bad_alloc();
      }
      refuse(fallback.reason); // the model's own operators say what is wrong
    }
  }
  type_of(result.dtype);
  values.set_type(node.output(), result.sizes, result.dtype, result.strides);
}

void build_by_torch(Builder& builder, const Node& node) {
  std::map<int64_t, Place> places;
  std::vector<Ref> touched;
  for (const auto& operand : node.inputs) {
    if (is_tensor(builder, operand)) {
      const auto value = operand.index;
      places[value] = as_in_torch(builder, value);
      touched.push_back(places[value].ref);
    }
  }
  const auto& spec = node.fallback->result;
  const auto to = is_channels_last(spec)
                      ? builder.make(node.output(), layout_of(spec))
                      : builder.make_dense(node.output());
  places[node.output()] = to;
  touched.push_back(to.ref);
  builder.add_in_torch(node, touched, step_in_torch(builder, node, places));
}

std::function<void(const Frame&)> step_in_torch(
    const Builder& builder,
    const Node& node,
    const std::map<int64_t, Place>& places) {
  const auto view_of = [&](int64_t value) {
    const auto& place = places.at(value);
    return View{
        place.ref,
        {.sizes = builder.sizes(value),
         .strides = place.strides,
         .dtype = builder.dtype(value)}};
  };
  std::vector<std::pair<size_t, View>> operands;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (is_tensor(builder, node.inputs[i])) {
      operands.emplace_back(i, view_of(node.inputs[i].index));
    }
  }
  std::vector<View> results;
  std::transform(
      node.outputs.begin(),
      node.outputs.end(),
      std::back_inserter(results),
      view_of);
  return [node,
          operands,
          results,
          numbers = operands_of(builder, node, [](int64_t) {
            return Tensor();
          })](const Frame& frame) {
    const BelowEverything below;
    auto given = numbers;
    for (const auto& [operand, view] : operands) {
      given[operand] = view.in(frame);
    }
    const auto made = interpret(node, given);
    for (size_t i = 0; i < results.size(); ++i) {
      results[i].in(frame).copy_(
          made.isTensorList() ? made.toTensorList().get(i) : made.toTensor());
    }
  };
}

} // namespace at::native::zendnn::plan
