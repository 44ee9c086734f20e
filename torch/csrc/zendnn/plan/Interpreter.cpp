#include <torch/csrc/zendnn/plan/Integers.h>
#include <torch/csrc/zendnn/plan/Interpreter.h>
#include <torch/csrc/zendnn/plan/LeftToTorch.h>
#include <torch/csrc/zendnn/plan/Operators.h>
#include <torch/csrc/zendnn/plan/PostOps.h>

#include <ATen/ATen.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace at::native::zendnn::plan {
namespace {

// A node's results: a tensor, a list of tensors, or a number.
using Made = c10::IValue;
using Interpret = Made (*)(const Node&, const Operands&);

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

Made slice(const Node&, const Operands& given) {
  return x_of(given).slice(
      given[1].toInt(),
      given[2].toOptional<int64_t>(),
      given[3].toOptional<int64_t>(),
      given[4].toInt());
}

Made split(const Node& node, const Operands& given) {
  const auto dim = node.get(attr::split::dim);
  const auto sizes = node.get(attr::split::sizes);
  if (sizes.empty()) {
    return x_of(given).chunk(node.get(attr::split::chunks), dim);
  }
  return sizes.size() == 1 ? x_of(given).split(sizes[0], dim)
                           : x_of(given).split_with_sizes(sizes, dim);
}

// ---- Elements

Made eltwise(const Node& node, const Operands& given) {
  return apply(
      node.get(attr::eltwise::algorithm),
      x_of(given),
      node.get(attr::eltwise::alpha),
      node.get(attr::eltwise::beta));
}

Made where(const Node& node, const Operands& given) {
  const auto condition = x_of(given);
  const Scalar value = node.get(attr::where::value);
  const auto x = given[1].toOptional<Tensor>(),
             y = given[2].toOptional<Tensor>();
  TORCH_CHECK(x || y, "a region chooses between numbers");
  const auto made = x && y ? at::where(condition, *x, *y)
                    : x    ? at::where(condition, *x, value)
                           : at::where(condition, value, *y);
  return node.get(attr::where::filled) ? made.contiguous() : made;
}

// ---- Norms

Tensor with_residual(const Node& node, const Operands& given) {
  const auto keeps = first_if(node.get(attr::layer_norm::in_place));
  return given[3].isNone()
             ? x_of(given)
             : combine("add", x_of(given), given[3].toTensor(), keeps);
}

Made layer_norm(const Node& node, const Operands& given) {
  const auto total = with_residual(node, given);
  const auto dims = node.get(attr::layer_norm::dims);
  const auto made = at::layer_norm(
      total,
      total.sizes().slice(total.dim() - dims),
      given[1].toOptional<Tensor>(),
      given[2].toOptional<Tensor>(),
      node.get(attr::layer_norm::eps));
  return Tensors{made, total};
}

Made rms_norm(const Node& node, const Operands& given) {
  const auto total = with_residual(node, given);
  const auto wide = total.to(at::promote_types(total.scalar_type(), kFloat));
  Dims dims(node.get(attr::layer_norm::dims));
  for (const auto i : c10::irange(dims.size())) {
    dims[i] = -1 - static_cast<int64_t>(i);
  }
  const auto mean = at::mean(at::square(wide), dims, /*keepdim=*/true);
  auto made = wide * at::rsqrt(mean + node.get(attr::layer_norm::eps));
  if (!given[1].isNone()) {
    made = made * given[1].toTensor();
  }
  return Tensors{made.to(total.scalar_type()), total};
}

Made group_norm(const Node& node, const Operands& given) {
  return at::group_norm(
      x_of(given),
      node.get(attr::group_norm::groups),
      given[1].toOptional<Tensor>(),
      given[2].toOptional<Tensor>(),
      node.get(attr::group_norm::eps));
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
      node.get(attr::batch_norm::eps),
      /*cudnn_enabled=*/false);
}

// ---- Embeddings

Tensor embedding_bag(
    const Node& node,
    const Tensor& table,
    Tensor ids,
    std::optional<Tensor> offsets,
    std::optional<Tensor> weights) {
  constexpr std::array<std::string_view, 3> kModes{"sum", "mean", "max"};
  const auto name = node.get(attr::embedding_bags::mode);
  if (name == "each") {
    return at::embedding(table, ids);
  }
  const bool last = node.get(attr::embedding_bags::last_offset) && offsets;
  if (!offsets) {
    offsets = at::arange(ids.size(0), ids.options()) * ids.size(1);
    ids = ids.reshape(-1);
  }
  if (weights) {
    weights = weights->reshape(-1);
  }
  const auto mode = std::find(kModes.begin(), kModes.end(), name);
  return std::get<0>(at::embedding_bag(
      table,
      ids,
      *offsets,
      /*scale_grad_by_freq=*/false,
      mode - kModes.begin(),
      /*sparse=*/false,
      weights,
      last));
}

Made embedding_bags(const Node& node, const Operands& given) {
  const auto count = static_cast<size_t>(node.get(attr::embedding_bags::count));
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
  const auto dims = node.get(attr::along::dims);
  const auto x = x_of(given);
  return at::logsumexp(
      dims.empty() ? x.flatten() : x,
      dims.empty() ? Dims{0} : dims,
      node.get(attr::along::keep));
}

Made argmax(const Node& node, const Operands& given) {
  const auto dims = node.get(attr::along::dims);
  const auto dim =
      dims.empty() ? std::nullopt : std::optional<int64_t>(dims.front());
  return at::argmax(x_of(given), dim, node.get(attr::along::keep));
}

// ---- Masks and positions

Made pair(const Node& node, const Operands& given) {
  return pair_in_torch(node, x_of(given), given[1].toTensor());
}

Made scatter(const Node& node, const Operands& given) {
  auto indices = given[1].toTensor();
  auto value = given[2].toTensor();
  value = value.dim() == 0 ? value.expand_as(indices) : value;
  const auto dim =
      at::maybe_wrap_dim(node.get(attr::scatter::dim), x_of(given).dim());
  if (node.get(attr::scatter::rows) && indices.numel() > 0) {
    // Its errors are not those of scatter_add.
    for (auto d = indices.dim() - 1; d >= 0; --d) {
      indices = d == dim ? indices : indices.select(d, 0);
    }
    return at::index_add(x_of(given), dim, indices, value);
  }
  return node.get(attr::scatter::add)
             ? at::scatter_add(x_of(given), dim, indices, value)
             : at::scatter(x_of(given), dim, indices, value);
}

Made full(const Node& node, const Operands& given) {
  return at::full(
      numbers_from(node, given, 0),
      node.get(attr::full::value),
      dtype_made(node.get(attr::full::dtype)));
}

// ---- All

// Except for the operators of LeftToTorch.
const std::unordered_map<std::string, Interpret>& table() {
  using N = const Node&;
  using G = const Operands&;
  static const std::unordered_map<std::string, Interpret> all{
      {"size",
       [](N, G given) -> Made { return x_of(given).size(given[1].toInt()); }},
      {"numel", [](N, G given) -> Made { return x_of(given).numel(); }},
      {"number_add",
       [](N, G given) { return of_numbers(given, std::plus<int64_t>()); }},
      {"number_sub",
       [](N, G given) { return of_numbers(given, std::minus<int64_t>()); }},
      {"number_mul",
       [](N, G given) {
         return of_numbers(given, std::multiplies<int64_t>());
       }},
      {"number_floordiv",
       [](N, G given) { return of_numbers(given, floor_divide); }},
      {"number_remainder",
       [](N, G given) {
         return of_numbers(given, [](int64_t a, int64_t b) {
           return a - floor_divide(a, b) * b;
         });
       }},
      {"power",
       [](N node, G given) -> Made {
         return at::scalar_tensor(
             std::pow(given[0].toInt(), node.get(attr::power::exponent)),
             kFloat);
       }},
      {"arange",
       [](N, G given) -> Made {
         return at::arange(
             given[0].toInt(), given[1].toInt(), given[2].toInt(), kLong);
       }},
      {"scalar",
       [](N, G given) -> Made {
         return at::scalar_tensor(given[0].toInt(), kLong);
       }},
      {"full", full},
      {"compare", pair},
      {"integer", pair},
      {"cumsum",
       [](N node, G given) -> Made {
         return at::cumsum(x_of(given), node.get(attr::cumsum::dim));
       }},
      {"view",
       [](N node, G given) -> Made {
         return x_of(given).reshape(numbers_from(node, given, 1));
       }},
      {"flatten",
       [](N, G given) -> Made {
         return x_of(given).flatten(given[1].toInt(), given[2].toInt());
       }},
      {"unflatten",
       [](N node, G given) -> Made {
         return x_of(given).unflatten(
             given[1].toInt(), numbers_from(node, given, 2));
       }},
      {"transpose",
       [](N, G given) -> Made {
         return x_of(given).transpose(given[1].toInt(), given[2].toInt());
       }},
      {"permute",
       [](N node, G given) -> Made {
         return x_of(given).permute(numbers_from(node, given, 1));
       }},
      {"unsqueeze",
       [](N, G given) -> Made {
         return x_of(given).unsqueeze(given[1].toInt());
       }},
      {"squeeze",
       [](N, G given) -> Made {
         return x_of(given).squeeze(given[1].toInt());
       }},
      {"expand",
       [](N node, G given) -> Made {
         return x_of(given).expand(numbers_from(node, given, 1));
       }},
      {"expand_as",
       [](N, G given) -> Made {
         return x_of(given).expand_as(given[1].toTensor());
       }},
      {"select",
       [](N, G given) -> Made {
         return x_of(given).select(given[1].toInt(), given[2].toInt());
       }},
      {"slice", slice},
      {"split", split},
      {"as_strided",
       [](N node, G given) -> Made {
         const auto& x = x_of(given);
         const auto strides = node.get(attr::as_strided::input_strides);
         return at::empty_strided(x.sizes(), strides, x.options())
             .copy_(x)
             .as_strided(
                 node.get(attr::as_strided::sizes),
                 node.get(attr::as_strided::strides));
       }},
      {"contiguous",
       [](N, G given) -> Made { return x_of(given).contiguous(); }},
      {"eltwise", eltwise},
      {"binary",
       [](N node, G given) -> Made {
         return combine(
             node.get(attr::binary::algorithm),
             x_of(given),
             given[1].toTensor(),
             first_if(node.get(attr::binary::in_place)));
       }},
      {"nonzero", [](N, G given) -> Made { return at::ne(x_of(given), 0); }},
      {"where", where},
      {"softmax",
       [](N node, G given) -> Made {
         const auto dim = node.get(attr::softmax::dim);
         return node.get(attr::softmax::log) ? at::log_softmax(x_of(given), dim)
                                             : at::softmax(x_of(given), dim);
       }},
      {"layer_norm", layer_norm},
      {"rms_norm", rms_norm},
      {"group_norm", group_norm},
      {"batch_norm", batch_norm},
      {"embedding",
       [](N, G given) -> Made {
         return at::embedding(x_of(given), given[1].toTensor());
       }},
      {"embedding_bag",
       [](N node, G given) -> Made {
         return embedding_bag(
             node,
             x_of(given),
             given[1].toTensor(),
             given[2].toOptional<Tensor>(),
             given[3].toOptional<Tensor>());
       }},
      {"embedding_bags", embedding_bags},
      {"mean",
       [](N node, G given) -> Made {
         return at::mean(
             x_of(given),
             node.get(attr::reduce::dims),
             node.get(attr::reduce::keep));
       }},
      {"sum",
       [](N node, G given) -> Made {
         return at::sum(
             x_of(given),
             node.get(attr::reduce::dims),
             node.get(attr::reduce::keep));
       }},
      {"argmax", argmax},
      {"logsumexp", logsumexp},
      {"topk",
       [](N node, G given) -> Made {
         return std::get<1>(at::topk(
             x_of(given),
             node.get(attr::topk::k),
             node.get(attr::topk::dim),
             node.get(attr::topk::largest),
             node.get(attr::topk::sorted)));
       }},
      {"index",
       [](N node, G given) -> Made {
         c10::List<std::optional<Tensor>> indices;
         for (const auto i : c10::irange(size_t{1}, node.inputs.size())) {
           indices.push_back(given[i].toOptional<Tensor>());
         }
         return at::index(x_of(given), indices);
       }},
      {"take_along",
       [](N node, G given) -> Made {
         return at::gather(
             x_of(given), node.get(attr::index::dim), given[1].toTensor());
       }},
      {"scatter", scatter},
      {"slice_scatter",
       [](N, G given) -> Made {
         return at::slice_scatter(
             x_of(given),
             given[1].toTensor(),
             given[2].toInt(),
             given[3].toOptional<int64_t>(),
             given[4].toOptional<int64_t>(),
             given[5].toInt());
       }},
      {"triu",
       [](N node, G given) -> Made {
         return at::triu(x_of(given), node.get(attr::triangle::diagonal));
       }},
      {"tril",
       [](N node, G given) -> Made {
         return at::tril(x_of(given), node.get(attr::triangle::diagonal));
       }},
      {"cat",
       [](N node, G given) -> Made {
         return at::cat(all_tensors(node, given), node.get(attr::cat::dim));
       }},
      {"stack",
       [](N node, G given) -> Made {
         return at::stack(all_tensors(node, given), node.get(attr::cat::dim));
       }},
      {"roll",
       [](N node, G given) -> Made {
         return at::roll(
             x_of(given),
             node.get(attr::roll::shifts),
             node.get(attr::roll::dims));
       }},
      {"to_like",
       [](N node, G given) -> Made {
         const auto& like = given[1].toTensor();
         if (node.get(attr::to::in_place)) {
           check_fits(x_of(given), like);
         }
         return x_of(given).to(like.scalar_type());
       }},
      {"to",
       [](N node, G given) -> Made {
         return x_of(given).to(dtype_made(node.get(attr::to::dtype)));
       }},
  };
  return all;
}

} // namespace

c10::IValue interpret(const Node& node, const Operands& given) {
  if (is_in_torch(node.op)) {
    return compute(node, given);
  }
  const auto found = table().find(node.op);
  TORCH_CHECK(
      found != table().end(), "no operator of torch's stands for ", node.op);
  auto made = found->second(node, given);
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
