#include <torch/csrc/zendnn/plan/describe/Functions.h>
#include <torch/csrc/zendnn/plan/describe/Operators.h>
#include <torch/csrc/zendnn/plan/run/Interpreter.h>
#include <torch/csrc/zendnn/plan/run/TorchFallback.h>

#include <ATen/ATen.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <optional>

namespace at::native::zendnn::plan {
namespace {

Tensor scaled(const Tensor& x, double factor, double addend) {
  const auto product = factor == 1 ? x : at::mul(x, factor);
  return addend == 0 ? product : at::add(product, addend);
}

// Applies the node's post-ops, one after the other.
Tensor
with_post_ops(const Node& node, Tensor result, const Arguments& arguments) {
  for (const auto& post : node.post) {
    result = post.is_binary()
                 ? combine(
                       post.combination,
                       result,
                       arguments[post.operand].toTensor(),
                       post.keeps)
                 : apply(post.function, result, post.alpha, post.beta);
  }
  return result;
}

} // namespace

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

c10::IValue interpret(const Node& node, const Arguments& arguments) {
  std::optional<route::Decided> decided;
  if (node.fallback) {
    const auto& fallback = *node.fallback;
    decided.emplace(
        fallback.by_route ? route::Says::torch : route::Says::zendnn);
  }
  auto result = row_of(node.op).compute(node, arguments);
  return node.post.empty() ? result
                           : with_post_ops(node, result.toTensor(), arguments);
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
    Arguments arguments(std::max(node.inputs.size(), kMostOperands));
    for (const auto i : c10::irange(node.inputs.size())) {
      const auto& operand = node.inputs[i];
      if (operand.kind == Operand::Kind::value) {
        arguments[i] = values[operand.index];
      } else if (operand) {
        arguments[i] = operand.index;
      }
    }
    try {
      const auto result = interpret(node, arguments);
      if (!result.isTensorList()) {
        values[node.output()] = result;
      } else {
        for (const auto i : c10::irange(node.outputs.size())) {
          values[node.outputs[i]] = result.toTensorList().get(i);
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
