// Operators that torch computes, but not by the first mapping of their rows:
// composed of several of torch's operators, or with other arguments.
#include <torch/csrc/zendnn/plan/describe/Functions.h>
#include <torch/csrc/zendnn/plan/describe/Operators.h>
#include <torch/csrc/zendnn/plan/run/Interpreter.h>
#include <torch/csrc/zendnn/plan/run/TorchCall.h>

#include <ATen/ATen.h>
#include <ATen/TensorIndexing.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace at::native::zendnn::plan {

using c10::IValue;

namespace {

Tensor first(const Arguments& arguments) {
  return arguments[0].toTensor();
}

// Rounds down, as Python does.
int64_t floor_divide(int64_t a, int64_t b) {
  TORCH_CHECK_VALUE(b != 0, "a region divides by zero");
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

// Calls torch's operator with its first arguments; the others have their
// defaults.
IValue call(const std::string& name, std::vector<IValue> arguments) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
      ("aten::" + name).c_str(), "");
  const auto& known = op.schema().arguments();
  for (auto i = arguments.size(); i < known.size(); ++i) {
    arguments.push_back(known[i].default_value().value());
  }
  op.callBoxed(arguments);
  return arguments.front();
}

// softmax(q·kᵀ + mask)·v, as the model spells it out.
Tensor spelled_out_attention(
    const Node& node,
    const Arguments& arguments,
    double scale) {
  const auto& of = node.as<attr::attention>();
  const auto q = first(arguments), k = arguments[1].toTensor();
  const auto mask = arguments[3].toOptional<Tensor>(),
             chosen = arguments[4].toOptional<Tensor>();
  if (of.causal || of.grouped ||
      (mask && mask->scalar_type() != q.scalar_type())) {
    refuse("an attention that no model spells out");
  }
  auto scores = at::matmul(q, k.mT());
  if (scale != 1) {
    scores = at::mul(scores, scale);
  }
  if (chosen) {
    scores = at::masked_fill(
        scores, of.fill_where ? *chosen : chosen->logical_not(), of.fill);
  }
  if (mask) {
    const auto keeps = first_if(of.in_place);
    scores = combine(kernels::Binary::add, scores, *mask, keeps);
  }
  return at::matmul(at::softmax(scores, -1), arguments[2].toTensor());
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

Tensor with_residual(const Node& node, const Arguments& arguments) {
  const auto keeps = first_if(node.as<attr::layer_norm>().in_place);
  return arguments[3].isNone() ? first(arguments)
                               : combine(
                                     kernels::Binary::add,
                                     first(arguments),
                                     arguments[3].toTensor(),
                                     keeps);
}

Tensors rms_norm(const Node& node, const Arguments& arguments) {
  const auto& of = node.as<attr::layer_norm>();
  const auto total = with_residual(node, arguments);
  const auto wide = total.to(at::promote_types(total.scalar_type(), kFloat));
  Dims dims(of.dims);
  for (const auto i : c10::irange(dims.size())) {
    dims[i] = -1 - static_cast<int64_t>(i);
  }
  const auto mean = at::mean(at::square(wide), dims, /*keepdim=*/true);
  auto result = wide * at::rsqrt(mean + of.eps);
  if (!arguments[1].isNone()) {
    result = result * arguments[1].toTensor();
  }
  return Tensors{result.to(total.scalar_type()), total};
}

Tensor embedding_bag(
    const Node& node,
    const Tensor& table,
    Tensor ids,
    std::optional<Tensor> offsets,
    std::optional<Tensor> weights) {
  const auto& of = node.as<attr::embedding_bags>();
  using kernels::Reduction;
  const auto mode = of.mode;
  if (mode == Reduction::none) {
    return at::embedding(table, ids);
  }
  const bool last = of.last_offset && offsets;
  if (!offsets) {
    offsets = at::arange(ids.size(0), ids.options()) * ids.size(1);
    ids = ids.reshape(-1);
  }
  if (weights) {
    weights = weights->reshape(-1);
  }
  return std::get<0>(at::embedding_bag(
      table,
      ids,
      *offsets,
      /*scale_grad_by_freq=*/false,
      mode == Reduction::sum    ? 0
      : mode == Reduction::mean ? 1
                                : 2,
      /*sparse=*/false,
      weights,
      last));
}

// x[..., rows, columns]
Tensor pairs_of(const Tensor& x, const Arguments& arguments) {
  return x.index(
      {indexing::Ellipsis, arguments[1].toTensor(), arguments[2].toTensor()});
}

} // namespace

// ---- Numbers

IValue compute_size(const Node&, const Arguments& arguments) {
  return first(arguments).size(arguments[1].toInt());
}

IValue compute_numel(const Node&, const Arguments& arguments) {
  return first(arguments).numel();
}

IValue compute_number(const Node& node, const Arguments& arguments) {
  const auto a = arguments[0].toInt(), b = arguments[1].toInt();
  switch (node.op) {
    case Op::number_add:
      return a + b;
    case Op::number_sub:
      return a - b;
    case Op::number_mul:
      return a * b;
    case Op::number_floordiv:
      return floor_divide(a, b);
    default: // number_remainder
      return a - floor_divide(a, b) * b;
  }
}

IValue compute_power(const Node& node, const Arguments& arguments) {
  const auto exponent = node.as<attr::power>().exponent;
  return at::scalar_tensor(std::pow(arguments[0].toInt(), exponent), kFloat);
}

IValue compute_scalar(const Node&, const Arguments& arguments) {
  return at::scalar_tensor(arguments[0].toInt(), kLong);
}

IValue compute_arange(const Node&, const Arguments& arguments) {
  return at::arange(
      arguments[0].toInt(), arguments[1].toInt(), arguments[2].toInt(), kLong);
}

IValue compute_full(const Node& node, const Arguments& arguments) {
  const auto& of = node.as<attr::full>();
  return at::full(
      numbers_from(node, arguments, 0), of.value, dtype_made(of.dtype));
}

// ---- Views

IValue compute_split(const Node& node, const Arguments& arguments) {
  const auto& of = node.as<attr::split>();
  const auto dim = of.dim;
  const auto sizes = of.sizes;
  if (sizes.empty()) {
    return first(arguments).chunk(of.chunks, dim);
  }
  return sizes.size() == 1 ? first(arguments).split(sizes[0], dim)
                           : first(arguments).split_with_sizes(sizes, dim);
}

IValue compute_as_strided(const Node& node, const Arguments& arguments) {
  const auto x = first(arguments);
  const auto& of = node.as<attr::as_strided>();
  return at::empty_strided(x.sizes(), of.input_strides, x.options())
      .copy_(x)
      .as_strided(of.sizes, of.strides);
}

// ---- Elements

IValue compute_eltwise(const Node& node, const Arguments& arguments) {
  const auto& of = node.as<attr::eltwise>();
  return apply(of.algorithm, first(arguments), of.alpha, of.beta);
}

IValue compute_binary(const Node& node, const Arguments& arguments) {
  const auto& of = node.as<attr::binary>();
  return combine(
      of.algorithm,
      first(arguments),
      arguments[1].toTensor(),
      first_if(of.in_place));
}

IValue compute_pair(const Node& node, const Arguments& arguments) {
  return row_of(node.as<attr::pair>().algorithm)
      .in_torch(first(arguments), arguments[1].toTensor());
}

IValue compute_where(const Node& node, const Arguments& arguments) {
  const auto& of = node.as<attr::where>();
  const auto condition = first(arguments);
  const Scalar value = of.value;
  const auto x = arguments[1].toOptional<Tensor>(),
             y = arguments[2].toOptional<Tensor>();
  TORCH_CHECK(x || y, "a region chooses between numbers");
  const auto result = x && y ? at::where(condition, *x, *y)
                      : x    ? at::where(condition, *x, value)
                             : at::where(condition, value, *y);
  return of.filled ? result.contiguous() : result;
}

IValue compute_to(const Node& node, const Arguments& arguments) {
  const auto x = first(arguments);
  const auto& of = node.as<attr::to>();
  switch (node.op) {
    case Op::nonzero:
      return at::ne(x, 0);
    case Op::to_like: {
      const auto& like = arguments[1].toTensor();
      if (of.in_place) {
        check_fits(x, like);
      }
      return x.to(like.scalar_type());
    }
    default: // to
      return x.to(dtype_returned(of.dtype));
  }
}

// ---- Layers

IValue compute_convolution(const Node& node, const Arguments& arguments) {
  auto x = first(arguments);
  const auto weight = arguments[1].toTensor();
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
      arguments[2].toOptional<Tensor>(),
      spread(of.stride, spatial, 1),
      padding,
      spread(of.dilation, spatial, 1),
      of.transposed,
      spread(of.output_padding, spatial, 0),
      of.groups);
}

// Promotes nothing, so that torch's own error names operands of two dtypes.
IValue compute_linear(const Node& node, const Arguments& arguments) {
  auto x = first(arguments), weight = arguments[1].toTensor();
  const auto bias = arguments[2].toOptional<Tensor>();
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

IValue compute_matmul(const Node&, const Arguments& arguments) {
  return at::matmul(first(arguments), arguments[1].toTensor());
}

IValue compute_attention(const Node& node, const Arguments& arguments) {
  const auto& of = node.as<attr::attention>();
  const auto q = first(arguments);
  const auto stated = of.scale;
  const auto scale =
      stated == 0 ? 1 / std::sqrt(static_cast<double>(q.size(-1))) : stated;
  Tensor result;
  if (of.additive) {
    result = spelled_out_attention(node, arguments, scale);
  } else if (!arguments[4].isNone()) {
    refuse("an attention that no model spells out");
  } else {
    const auto k = arguments[1].toTensor();
    auto mask = arguments[3].toOptional<Tensor>();
    bool causal = of.causal;
    if (mask && causal) {
      mask = with_causal(*mask, q, k);
      causal = false;
    }
    result = at::scaled_dot_product_attention(
        q,
        k,
        arguments[2].toTensor(),
        mask,
        /*dropout_p=*/0,
        causal,
        stated == 0 ? std::nullopt : std::optional(scale),
        of.grouped);
  }
  return of.swapped ? result.transpose(1, 2).contiguous() : result;
}

IValue compute_rope(const Node& node, const Arguments& arguments) {
  const auto x = first(arguments);
  const auto cos = arguments[1].toTensor(), sin = arguments[2].toTensor();
  const auto rotary = cos.size(-1);
  const auto turned = x.narrow(-1, 0, rotary);
  const auto pairs = node.as<attr::rope>().interleaved
                         ? turned.unflatten(-1, {-1, 2})
                         : turned.unflatten(-1, {2, -1}).mT();
  const auto quarter = at::stack(
                           {pairs.select(-1, 1).neg(), pairs.select(-1, 0)},
                           node.as<attr::rope>().interleaved ? -1 : -2)
                           .flatten(-2);
  const auto result = at::add(at::mul(turned, cos), at::mul(quarter, sin));
  const auto kept = x.narrow(-1, rotary, x.size(-1) - rotary);
  return kept.size(-1) == 0 ? result : at::cat({result, kept}, -1);
}

// One number of a window stands for all spatial dimensions.
IValue compute_pool(const Node& node, const Arguments& arguments) {
  const auto x = first(arguments);
  const bool adaptive = node.op == Op::adaptive_avg_pool;
  const bool max = node.op == Op::max_pool;
  const auto& of = node.as<attr::pool>();
  const auto& window = adaptive ? of.sizes : of.kernel;
  const auto spatial =
      window.size() > 1
          ? window.size()
          : static_cast<size_t>(std::max<int64_t>(x.dim() - 2, 1));
  std::vector<IValue> passed{x, spread(window, spatial, 1)};
  if (!adaptive) {
    passed.emplace_back(of.stride);
    passed.emplace_back(spread(of.padding, spatial, 0));
    if (max) {
      passed.emplace_back(spread(of.dilation, spatial, 1));
    }
    passed.emplace_back(of.ceil);
    if (!max) {
      passed.emplace_back(of.include_pad);
    }
  }
  return call(
      name_of(node.op) + std::to_string(spatial) + "d", std::move(passed));
}

IValue compute_resample(const Node& node, const Arguments& arguments) {
  const auto& of = node.as<attr::resample>();
  const auto x = first(arguments);
  const double scales[] = {of.scale_height, of.scale_width};
  std::optional<double> factors[2];
  Dims sizes;
  for (const size_t i : {0, 1}) {
    if (scales[i] > 0) {
      factors[i] = scales[i];
    }
    const auto whole = static_cast<double>(x.sizes()[2 + i]) * scales[i];
    sizes.push_back(
        arguments[1 + i].isNone() ? static_cast<int64_t>(std::floor(whole))
                                  : arguments[1 + i].toInt());
  }
  const auto algorithm = of.algorithm;
  if (algorithm == kernels::Resampling::nearest) {
    return at::upsample_nearest2d(x, sizes, factors[0], factors[1]);
  }
  if (algorithm != kernels::Resampling::linear || x.dim() != 4) {
    refuse("a resampling that is neither nearest nor bilinear");
  }
  const bool align = of.align_corners;
  return at::upsample_bilinear2d(x, sizes, align, factors[0], factors[1]);
}

// ---- Norms

IValue compute_softmax(const Node& node, const Arguments& arguments) {
  const auto& of = node.as<attr::softmax>();
  return of.log ? at::log_softmax(first(arguments), of.dim)
                : at::softmax(first(arguments), of.dim);
}

IValue compute_layer_norm(const Node& node, const Arguments& arguments) {
  const auto& of = node.as<attr::layer_norm>();
  if (node.op == Op::rms_norm) {
    return rms_norm(node, arguments);
  }
  const auto total = with_residual(node, arguments);
  const auto dims = of.dims;
  const auto result = at::layer_norm(
      total,
      total.sizes().slice(total.dim() - dims),
      arguments[1].toOptional<Tensor>(),
      arguments[2].toOptional<Tensor>(),
      of.eps);
  return Tensors{result, total};
}

// ---- Embeddings

IValue compute_embedding_bags(const Node& node, const Arguments& arguments) {
  const auto count = static_cast<size_t>(node.as<attr::embedding_bags>().count);
  Tensors results;
  for (const auto i : c10::irange(count)) {
    const auto operand = [&](size_t group) {
      const auto at = group * count + i;
      return at < arguments.size() ? arguments[at].toOptional<Tensor>()
                                   : std::nullopt;
    };
    results.push_back(embedding_bag(
        node, operand(0).value(), operand(1).value(), operand(2), operand(3)));
  }
  return node.op == Op::embedding_bags ? IValue(results)
                                       : IValue(results.front());
}

// ---- Reductions

IValue compute_along(const Node& node, const Arguments& arguments) {
  const auto x = first(arguments);
  const auto& [dims, keep] = node.as<attr::along>();
  if (node.op == Op::argmax) {
    const auto dim =
        dims.empty() ? std::nullopt : std::optional<int64_t>(dims.front());
    return at::argmax(x, dim, keep);
  }
  return at::logsumexp(
      dims.empty() ? x.flatten() : x, dims.empty() ? Dims{0} : dims, keep);
}

IValue compute_topk(const Node& node, const Arguments& arguments) {
  const auto& of = node.as<attr::topk>();
  return std::get<1>(
      at::topk(first(arguments), of.k, of.dim, of.largest, of.sorted));
}

IValue compute_cumsum(const Node& node, const Arguments& arguments) {
  return at::cumsum(first(arguments), node.as<attr::cumsum>().dim);
}

// ---- Indices and positions

IValue compute_index(const Node& node, const Arguments& arguments) {
  c10::List<std::optional<Tensor>> indices;
  for (const auto i : c10::irange(size_t{1}, node.inputs.size())) {
    indices.push_back(arguments[i].toOptional<Tensor>());
  }
  return at::index(first(arguments), indices);
}

IValue compute_gather_pairs(const Node&, const Arguments& arguments) {
  return pairs_of(first(arguments), arguments);
}

IValue compute_pairwise_dot(const Node&, const Arguments& arguments) {
  const auto x = first(arguments);
  return pairs_of(at::matmul(x, x.mT()), arguments);
}

IValue compute_scatter(const Node& node, const Arguments& arguments) {
  const auto& of = node.as<attr::scatter>();
  auto indices = arguments[1].toTensor();
  auto value = arguments[2].toTensor();
  value = value.dim() == 0 ? value.expand_as(indices) : value;
  const auto dim = at::maybe_wrap_dim(of.dim, first(arguments).dim());
  if (of.rows && indices.numel() > 0) {
    // Its errors are not those of scatter_add.
    for (auto d = indices.dim() - 1; d >= 0; --d) {
      indices = d == dim ? indices : indices.select(d, 0);
    }
    return at::index_add(first(arguments), dim, indices, value);
  }
  return of.add ? at::scatter_add(first(arguments), dim, indices, value)
                : at::scatter(first(arguments), dim, indices, value);
}

IValue compute_slice_scatter(const Node&, const Arguments& arguments) {
  return at::slice_scatter(
      first(arguments),
      arguments[1].toTensor(),
      arguments[2].toInt(),
      arguments[3].toOptional<int64_t>(),
      arguments[4].toOptional<int64_t>(),
      arguments[5].toInt());
}

IValue compute_write(const Node& node, const Arguments&) {
  TORCH_CHECK(false, "no operator of torch's stands for ", name_of(node.op));
}

} // namespace at::native::zendnn::plan
