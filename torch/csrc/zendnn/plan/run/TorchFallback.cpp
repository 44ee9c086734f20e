// Leaves nodes that a plan refuses to torch, each as one step.
#include <torch/csrc/zendnn/plan/describe/Operators.h>
#include <torch/csrc/zendnn/plan/run/Interpreter.h>
#include <torch/csrc/zendnn/plan/run/TorchFallback.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <new>
#include <string_view>

namespace at::native::zendnn::plan {
namespace {

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
Arguments
operands_of(const Values& values, const Node& node, const Find& find) {
  Arguments arguments(std::max(node.inputs.size(), kMostOperands));
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const auto& operand = node.inputs[i];
    if (is_tensor(values, operand)) {
      arguments[i] = find(operand.index);
    } else if (operand) {
      arguments[i] = values.number(operand);
    }
  }
  return arguments;
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

bool lies_channels_last(const TensorSpec& spec) {
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
  const auto& spec = builder.values().spec(value);
  if (lies_channels_last(spec)) {
    return {
        .ref = builder.in_layout(value, layout_of(spec)),
        .strides = spec.strides};
  }
  return is_row_major(spec.sizes, spec.strides) ? builder.dense(value)
                                                : builder.strided(value);
}

} // namespace

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
  if (node.fallback || !row_of(node.op).falls_back) {
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
      const auto arguments = operands_of(
          values, node, [&](int64_t value) { return stand_in(values, value); });
      result = spec_of(interpret(node, arguments).toTensor());
      const auto start = std::chrono::steady_clock::now();
      interpret(node, arguments);
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
    if (is_tensor(builder.values(), operand)) {
      const auto value = operand.index;
      places[value] = as_in_torch(builder, value);
      touched.push_back(places[value].ref);
    }
  }
  const auto& spec = node.fallback->result;
  const auto to = lies_channels_last(spec)
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
        {.sizes = builder.values().sizes(value),
         .strides = place.strides,
         .dtype = builder.values().dtype(value)}};
  };
  std::vector<std::pair<size_t, View>> operands;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (is_tensor(builder.values(), node.inputs[i])) {
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
          numbers = operands_of(builder.values(), node, [](int64_t) {
            return Tensor();
          })](const Frame& frame) {
    const BelowEverything below;
    auto arguments = numbers;
    for (const auto& [operand, view] : operands) {
      arguments[operand] = view.in(frame);
    }
    const auto result = interpret(node, arguments);
    for (size_t i = 0; i < results.size(); ++i) {
      results[i].in(frame).copy_(
          result.isTensorList() ? result.toTensorList().get(i)
                                : result.toTensor());
    }
  };
}

} // namespace at::native::zendnn::plan
