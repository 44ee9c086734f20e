#include <torch/csrc/zendnn/plan/describe/Functions.h>
#include <torch/csrc/zendnn/plan/describe/Operators.h>
#include <torch/csrc/zendnn/plan/run/Interpreter.h>
#include <torch/csrc/zendnn/plan/run/TorchFallback.h>

#include <ATen/ATen.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <cmath>
#include <optional>

namespace at::native::zendnn::plan {
namespace {

// A node's results: a tensor, a list of tensors, or a number.
using Made = c10::IValue;

Tensor x_of(const Operands& given) {
  return given[0].toTensor();
}

// The numbers that follow the first operands, and all tensors.
Dims numbers_from(const Node& node, const Operands& given, size_t first) {
  Dims numbers;
  for (const auto i : c10::irange(first, node.inputs.size())) {
    numbers.push_back(given[i].toInt());
  }
  return numbers;
}

Tensors all_tensors(const Node& node, const Operands& given) {
  Tensors tensors;
  for (const auto i : c10::irange(node.inputs.size())) {
    tensors.push_back(given[i].toTensor());
  }
  return tensors;
}

// ---- Numbers

// Rounds down, as Python does.
int64_t floor_divide(int64_t a, int64_t b) {
  TORCH_CHECK_VALUE(b != 0, "a region divides by zero");
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

template <typename Function>
Made of_numbers(const Operands& given, const Function& function) {
  return function(given[0].toInt(), given[1].toInt());
}

// ---- Views

Made slice(const Operands& given) {
  return x_of(given).slice(
      given[1].toInt(),
      given[2].toOptional<int64_t>(),
      given[3].toOptional<int64_t>(),
      given[4].toInt());
}

Made split(const Node& node, const Operands& given) {
  const auto dim = node.as<attr::split>().dim;
  const auto sizes = node.as<attr::split>().sizes;
  if (sizes.empty()) {
    return x_of(given).chunk(node.as<attr::split>().chunks, dim);
  }
  return sizes.size() == 1 ? x_of(given).split(sizes[0], dim)
                           : x_of(given).split_with_sizes(sizes, dim);
}

Made as_strided(const Node& node, const Operands& given) {
  const auto& x = x_of(given);
  const auto& of = node.as<attr::as_strided>();
  return at::empty_strided(x.sizes(), of.input_strides, x.options())
      .copy_(x)
      .as_strided(of.sizes, of.strides);
}

// ---- Elements

Made eltwise(const Node& node, const Operands& given) {
  return apply(
      node.as<attr::eltwise>().algorithm,
      x_of(given),
      node.as<attr::eltwise>().alpha,
      node.as<attr::eltwise>().beta);
}

Made where(const Node& node, const Operands& given) {
  const auto condition = x_of(given);
  const Scalar value = node.as<attr::where>().value;
  const auto x = given[1].toOptional<Tensor>(),
             y = given[2].toOptional<Tensor>();
  TORCH_CHECK(x || y, "a region chooses between numbers");
  const auto made = x && y ? at::where(condition, *x, *y)
                    : x    ? at::where(condition, *x, value)
                           : at::where(condition, value, *y);
  return node.as<attr::where>().filled ? made.contiguous() : made;
}

Made to_like(const Node& node, const Operands& given) {
  const auto& like = given[1].toTensor();
  if (node.as<attr::to>().in_place) {
    check_fits(x_of(given), like);
  }
  return x_of(given).to(like.scalar_type());
}

// ---- Norms

Made softmax(const Node& node, const Operands& given) {
  const auto dim = node.as<attr::softmax>().dim;
  return node.as<attr::softmax>().log ? at::log_softmax(x_of(given), dim)
                                      : at::softmax(x_of(given), dim);
}

Tensor with_residual(const Node& node, const Operands& given) {
  const auto keeps = first_if(node.as<attr::layer_norm>().in_place);
  return given[3].isNone() ? x_of(given)
                           : combine(
                                 kernels::Binary::add,
                                 x_of(given),
                                 given[3].toTensor(),
                                 keeps);
}

Made layer_norm(const Node& node, const Operands& given) {
  const auto total = with_residual(node, given);
  const auto dims = node.as<attr::layer_norm>().dims;
  const auto made = at::layer_norm(
      total,
      total.sizes().slice(total.dim() - dims),
      given[1].toOptional<Tensor>(),
      given[2].toOptional<Tensor>(),
      node.as<attr::layer_norm>().eps);
  return Tensors{made, total};
}

Made rms_norm(const Node& node, const Operands& given) {
  const auto total = with_residual(node, given);
  const auto wide = total.to(at::promote_types(total.scalar_type(), kFloat));
  Dims dims(node.as<attr::layer_norm>().dims);
  for (const auto i : c10::irange(dims.size())) {
    dims[i] = -1 - static_cast<int64_t>(i);
  }
  const auto mean = at::mean(at::square(wide), dims, /*keepdim=*/true);
  auto made = wide * at::rsqrt(mean + node.as<attr::layer_norm>().eps);
  if (!given[1].isNone()) {
    made = made * given[1].toTensor();
  }
  return Tensors{made.to(total.scalar_type()), total};
}

Made group_norm(const Node& node, const Operands& given) {
  return at::group_norm(
      x_of(given),
      node.as<attr::group_norm>().groups,
      given[1].toOptional<Tensor>(),
      given[2].toOptional<Tensor>(),
      node.as<attr::group_norm>().eps);
}

Made batch_norm(const Node& node, const Operands& given) {
  return at::batch_norm(
      x_of(given),
      given[1].toOptional<Tensor>(),
      given[2].toOptional<Tensor>(),
      given[3].toOptional<Tensor>(),
      given[4].toOptional<Tensor>(),
      /*training=*/false,
      /*momentum=*/0,
      node.as<attr::batch_norm>().eps,
      /*cudnn_enabled=*/false);
}

// ---- Embeddings

Tensor embedding_bag(
    const Node& node,
    const Tensor& table,
    Tensor ids,
    std::optional<Tensor> offsets,
    std::optional<Tensor> weights) {
  using kernels::Reduction;
  const auto mode = node.as<attr::embedding_bags>().mode;
  if (mode == Reduction::none) {
    return at::embedding(table, ids);
  }
  const bool last = node.as<attr::embedding_bags>().last_offset && offsets;
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

Made embedding_bags(const Node& node, const Operands& given) {
  const auto count = static_cast<size_t>(node.as<attr::embedding_bags>().count);
  Tensors made;
  for (const auto i : c10::irange(count)) {
    const auto operand = [&](size_t group) {
      const auto at = group * count + i;
      return at < given.size() ? given[at].toOptional<Tensor>() : std::nullopt;
    };
    made.push_back(embedding_bag(
        node, operand(0).value(), operand(1).value(), operand(2), operand(3)));
  }
  return made;
}

// ---- Reductions

Made logsumexp(const Node& node, const Operands& given) {
  const auto dims = node.as<attr::along>().dims;
  const auto x = x_of(given);
  return at::logsumexp(
      dims.empty() ? x.flatten() : x,
      dims.empty() ? Dims{0} : dims,
      node.as<attr::along>().keep);
}

Made argmax(const Node& node, const Operands& given) {
  const auto dims = node.as<attr::along>().dims;
  const auto dim =
      dims.empty() ? std::nullopt : std::optional<int64_t>(dims.front());
  return at::argmax(x_of(given), dim, node.as<attr::along>().keep);
}

Made topk(const Node& node, const Operands& given) {
  const auto& of = node.as<attr::topk>();
  return std::get<1>(
      at::topk(x_of(given), of.k, of.dim, of.largest, of.sorted));
}

// ---- Indices and positions

Made index(const Node& node, const Operands& given) {
  c10::List<std::optional<Tensor>> indices;
  for (const auto i : c10::irange(size_t{1}, node.inputs.size())) {
    indices.push_back(given[i].toOptional<Tensor>());
  }
  return at::index(x_of(given), indices);
}

Made scatter(const Node& node, const Operands& given) {
  auto indices = given[1].toTensor();
  auto value = given[2].toTensor();
  value = value.dim() == 0 ? value.expand_as(indices) : value;
  const auto dim =
      at::maybe_wrap_dim(node.as<attr::scatter>().dim, x_of(given).dim());
  if (node.as<attr::scatter>().rows && indices.numel() > 0) {
    // Its errors are not those of scatter_add.
    for (auto d = indices.dim() - 1; d >= 0; --d) {
      indices = d == dim ? indices : indices.select(d, 0);
    }
    return at::index_add(x_of(given), dim, indices, value);
  }
  return node.as<attr::scatter>().add
             ? at::scatter_add(x_of(given), dim, indices, value)
             : at::scatter(x_of(given), dim, indices, value);
}

Made slice_scatter(const Operands& given) {
  return at::slice_scatter(
      x_of(given),
      given[1].toTensor(),
      given[2].toInt(),
      given[3].toOptional<int64_t>(),
      given[4].toOptional<int64_t>(),
      given[5].toInt());
}

Made full(const Node& node, const Operands& given) {
  return at::full(
      numbers_from(node, given, 0),
      node.as<attr::full>().value,
      dtype_made(node.as<attr::full>().dtype));
}

// ---- All

// Of a node without post-ops. Has a case for each operator.
Made compute_any(const Node& node, const Operands& given) {
  switch (node.op) {
    case Op::size:
      return x_of(given).size(given[1].toInt());
    case Op::numel:
      return x_of(given).numel();
    case Op::number_add:
      return of_numbers(given, std::plus<int64_t>());
    case Op::number_sub:
      return of_numbers(given, std::minus<int64_t>());
    case Op::number_mul:
      return of_numbers(given, std::multiplies<int64_t>());
    case Op::number_floordiv:
      return of_numbers(given, floor_divide);
    case Op::number_remainder:
      return of_numbers(given, [](int64_t a, int64_t b) {
        return a - floor_divide(a, b) * b;
      });
    case Op::power:
      return at::scalar_tensor(
          std::pow(given[0].toInt(), node.as<attr::power>().exponent), kFloat);
    case Op::scalar:
      return at::scalar_tensor(given[0].toInt(), kLong);
    case Op::arange:
      return at::arange(
          given[0].toInt(), given[1].toInt(), given[2].toInt(), kLong);
    case Op::full:
      return full(node, given);
    case Op::view:
      return x_of(given).reshape(numbers_from(node, given, 1));
    case Op::flatten:
      return x_of(given).flatten(given[1].toInt(), given[2].toInt());
    case Op::unflatten:
      return x_of(given).unflatten(
          given[1].toInt(), numbers_from(node, given, 2));
    case Op::transpose:
      return x_of(given).transpose(given[1].toInt(), given[2].toInt());
    case Op::permute:
      return x_of(given).permute(numbers_from(node, given, 1));
    case Op::unsqueeze:
      return x_of(given).unsqueeze(given[1].toInt());
    case Op::squeeze:
      return x_of(given).squeeze(given[1].toInt());
    case Op::expand:
      return x_of(given).expand(numbers_from(node, given, 1));
    case Op::expand_as:
      return x_of(given).expand_as(given[1].toTensor());
    case Op::select:
      return x_of(given).select(given[1].toInt(), given[2].toInt());
    case Op::slice:
      return slice(given);
    case Op::split:
      return split(node, given);
    case Op::as_strided:
      return as_strided(node, given);
    case Op::contiguous:
      return x_of(given).contiguous();
    case Op::eltwise:
      return eltwise(node, given);
    case Op::binary:
      return combine(
          node.as<attr::binary>().algorithm,
          x_of(given),
          given[1].toTensor(),
          first_if(node.as<attr::binary>().in_place));
    case Op::nonzero:
      return at::ne(x_of(given), 0);
    case Op::compare:
    case Op::integer:
      return row_of(node.as<attr::pair>().algorithm)
          .in_torch(x_of(given), given[1].toTensor());
    case Op::where:
      return where(node, given);
    case Op::softmax:
      return softmax(node, given);
    case Op::layer_norm:
      return layer_norm(node, given);
    case Op::rms_norm:
      return rms_norm(node, given);
    case Op::group_norm:
      return group_norm(node, given);
    case Op::batch_norm:
      return batch_norm(node, given);
    case Op::embedding:
      return at::embedding(x_of(given), given[1].toTensor());
    case Op::embedding_bag:
      return embedding_bag(
          node,
          x_of(given),
          given[1].toTensor(),
          given[2].toOptional<Tensor>(),
          given[3].toOptional<Tensor>());
    case Op::embedding_bags:
      return embedding_bags(node, given);
    case Op::mean:
      return at::mean(
          x_of(given),
          node.as<attr::reduce>().dims,
          node.as<attr::reduce>().keep);
    case Op::sum:
      return at::sum(
          x_of(given),
          node.as<attr::reduce>().dims,
          node.as<attr::reduce>().keep);
    case Op::argmax:
      return argmax(node, given);
    case Op::logsumexp:
      return logsumexp(node, given);
    case Op::topk:
      return topk(node, given);
    case Op::cumsum:
      return at::cumsum(x_of(given), node.as<attr::cumsum>().dim);
    case Op::index:
      return index(node, given);
    case Op::take_along:
      return at::gather(
          x_of(given), node.as<attr::index>().dim, given[1].toTensor());
    case Op::scatter:
      return scatter(node, given);
    case Op::slice_scatter:
      return slice_scatter(given);
    case Op::triu:
      return at::triu(x_of(given), node.as<attr::triangle>().diagonal);
    case Op::tril:
      return at::tril(x_of(given), node.as<attr::triangle>().diagonal);
    case Op::cat:
      return at::cat(all_tensors(node, given), node.as<attr::cat>().dim);
    case Op::stack:
      return at::stack(all_tensors(node, given), node.as<attr::cat>().dim);
    case Op::roll:
      return at::roll(
          x_of(given),
          node.as<attr::roll>().shifts,
          node.as<attr::roll>().dims);
    case Op::to:
      return x_of(given).to(dtype_made(node.as<attr::to>().dtype));
    case Op::to_like:
      return to_like(node, given);
    case Op::convolution:
    case Op::linear:
    case Op::matmul:
    case Op::prelu:
    case Op::attention:
    case Op::rope:
    case Op::gather_pairs:
    case Op::pairwise_dot:
    case Op::max_pool:
    case Op::avg_pool:
    case Op::adaptive_avg_pool:
    case Op::resample:
    case Op::pad: // which TorchFallback.cpp computes
    case Op::write:
      break;
  }
  TORCH_CHECK(false, "no operator of torch's stands for ", name_of(node.op));
}

} // namespace

c10::IValue interpret(const Node& node, const Operands& given) {
  if (is_in_torch(node.op)) {
    return compute(node, given);
  }
  auto made = compute_any(node, given);
  return node.post.empty() ? made : with_post_ops(node, made.toTensor(), given);
}

Tensors interpret(
    const Description& region,
    const Tensors& constants,
    const Tensors& tensors,
    const Integers& numbers) {
  std::vector<c10::IValue> values(region.values);
  std::vector<int64_t> uses(region.values); // that are still to come
  auto tensor = tensors.begin();
  auto number = numbers.begin();
  for (const auto& input : region.inputs) {
    auto& value = values[input.value];
    input.is_number ? value = *number++ : value = *tensor++;
  }
  for (const auto i : c10::irange(constants.size())) {
    values[region.constants[i]] = constants[i];
  }
  const auto count = [&](int64_t value) { ++uses[value]; };
  std::for_each(region.outputs.begin(), region.outputs.end(), count);
  for (const auto& node : region.nodes) {
    const auto read = node.reads();
    std::for_each(read.begin(), read.end(), count);
  }
  for (const auto& node : region.nodes) {
    Operands given(std::max(node.inputs.size(), kMostOperands));
    for (const auto i : c10::irange(node.inputs.size())) {
      const auto& operand = node.inputs[i];
      if (operand.kind == Operand::Kind::value) {
        given[i] = values[operand.index];
      } else if (operand) {
        given[i] = operand.index;
      }
    }
    try {
      const auto made = interpret(node, given);
      if (!made.isTensorList()) {
        values[node.output()] = made;
      } else {
        for (const auto i : c10::irange(node.outputs.size())) {
          values[node.outputs[i]] = made.toTensorList().get(i);
        }
      }
    } catch (const Refused& refused) {
      TORCH_CHECK(false, "no operator of torch's stands for ", refused.what());
    }
    for (const auto value : node.reads()) {
      if (--uses[value] == 0) {
        values[value] = {};
      }
    }
  }
  Tensors results;
  for (const auto output : region.outputs) {
    results.push_back(values[output].toTensor());
  }
  return results;
}

} // namespace at::native::zendnn::plan
