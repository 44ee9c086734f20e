// What masks and positions are made with: comparisons, arithmetic and logic of
// integers, running sums, and tensors that are made from numbers.
#include <torch/csrc/zendnn/plan/build/Kernel.h>

#include <ATen/native/zendnn/kernels/integers.h>

#include <limits>
#include <string>

namespace at::native::zendnn::plan {
namespace {

using kernels::Pair;
using kernels::PairType;

PairType pair_type(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Long:
      return PairType::int64;
    case c10::ScalarType::Bool:
      return PairType::boolean;
    case c10::ScalarType::Float:
      return PairType::float32;
    case c10::ScalarType::BFloat16:
      return PairType::bfloat16;
    default:
      refuse(std::string("a comparison of ") + c10::toString(dtype));
  }
}

// How many numbers there are. A call's numbers may change the start alone.
int64_t length_of(const Values& values, const Node& node) {
  const auto& start = node.inputs[0];
  const auto& end = node.inputs[1];
  const auto step = values.number(node.inputs[2]);
  int64_t reach = 0;
  const auto distance = sum(values.unbound(end), values.unbound(start), -1);
  if (distance && distance->is_constant()) {
    reach = distance->constant;
  } else if (__builtin_sub_overflow(
                 values.number(end), values.number(start), &reach)) {
    refuse("a number beyond 64 bits");
  }
  if (step == 0 || (reach < 0) != (step < 0) ||
      reach == std::numeric_limits<int64_t>::min()) {
    refuse("a range without a number of elements");
  }
  return reach / step + (reach % step != 0 ? 1 : 0);
}

} // namespace

void infer_pair(Values& values, const Node& node) {
  const auto a = tensor(node, 0), b = tensor(node, 1);
  const auto dtype = values.dtype(a);
  if (dtype != values.dtype(b)) {
    refuse("tensors of different dtypes");
  }
  const auto algorithm = node.as<attr::pair>().algorithm;
  const bool compares = node.op == Op::compare;
  const auto type = pair_type(dtype);
  if (!compares && type != PairType::int64 &&
      (type != PairType::boolean || algorithm < Pair::bit_and)) {
    refuse(std::string("arithmetic of integers of ") + c10::toString(dtype));
  }
  values.set_type(
      node.output(),
      broadcast(values.sizes(a), values.sizes(b)),
      compares ? c10::ScalarType::Bool : dtype);
}

void build_pair(Builder& builder, const Node& node) {
  const auto output = node.output();
  const auto& sizes = builder.values().sizes(output);
  const auto a = broadcast_place(builder, tensor(node, 0), sizes),
             b = broadcast_place(builder, tensor(node, 1), sizes);
  const auto to = builder.make_dense(output);
  using Args = kernels::PairArgs;
  add_kernel(
      builder,
      node,
      name_of(node.op) + " " + name_of(node.as<attr::pair>().algorithm),
      kernels::pair,
      {.ndim = std::ssize(sizes),
       .algorithm = node.as<attr::pair>().algorithm,
       .dtype = pair_type(builder.values().dtype(tensor(node, 0)))},
      {{&Args::a, a.ref},
       {&Args::a_strides, a.strides},
       {&Args::b, b.ref},
       {&Args::b_strides, b.strides},
       {&Args::out, to.ref},
       {&Args::out_strides, to.strides},
       {&Args::sizes, sizes}});
}

void infer_cumsum(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  const auto from = values.dtype(input);
  const auto result =
      pair_type(from) == PairType::float32 ? from : c10::ScalarType::Long;
  if (from == kBFloat16 ||
      dtype_made(node.as<attr::cumsum>().dtype) != result) {
    refuse(std::string("a running sum of ") + c10::toString(from));
  }
  wrap(node.as<attr::cumsum>().dim, std::ssize(values.sizes(input)));
  values.set_type(node.output(), values.sizes(input), result);
}

void build_cumsum(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0);
  const auto& sizes = builder.values().sizes(input);
  const auto dim = wrap(node.as<attr::cumsum>().dim, std::ssize(sizes));
  const auto from = builder.dense(input);
  const auto to = builder.make_dense(node.output());
  using Args = kernels::CumsumArgs;
  add_kernel(
      builder,
      node,
      "cumsum",
      kernels::cumsum,
      {.outer = count(Dims(sizes.begin(), sizes.begin() + dim)),
       .dim = sizes[dim],
       .inner = count(Dims(sizes.begin() + dim + 1, sizes.end())),
       .dtype = pair_type(builder.values().dtype(input))},
      {{&Args::x, from.ref}, {&Args::out, to.ref}});
}

void infer_arange(Values& values, const Node& node) {
  values.set_type(
      node.output(), {length_of(values, node)}, c10::ScalarType::Long);
}

void build_arange(Builder& builder, const Node& node) {
  const auto to = builder.make_dense(node.output());
  const auto start = builder.values().unbound(node.inputs[0]);
  const auto step = builder.values().number(node.inputs[2]);
  const auto length = builder.values().sizes(node.output())[0];
  builder.add_kernel(node, "arange", {to.ref}, [=](const Frame& frame) {
    auto* const result = frame.at<int64_t>(to.ref);
    auto next = static_cast<uint64_t>(frame.value(start));
    for (int64_t i = 0; i < length; ++i, next += step) {
      result[i] = static_cast<int64_t>(next);
    }
  });
}

void infer_scalar(Values& values, const Node& node) {
  values.unbound(node.inputs[0]); // which is no tensor
  values.set_type(node.output(), {}, c10::ScalarType::Long);
}

void build_scalar(Builder& builder, const Node& node) {
  const auto number = builder.values().unbound(node.inputs[0]);
  const auto to = builder.make_dense(node.output());
  builder.add_kernel(node, "scalar", {to.ref}, [=](const Frame& frame) {
    *frame.at<int64_t>(to.ref) = frame.value(number);
  });
}

void infer_full(Values& values, const Node& node) {
  Dims sizes;
  for (const auto& size : node.inputs) {
    sizes.push_back(values.number(size));
  }
  values.set_type(
      node.output(), std::move(sizes), dtype_made(node.as<attr::full>().dtype));
}

void build_full(Builder& builder, const Node& node) {
  const auto value = node.output();
  builder.set_place(
      value,
      place_number(
          builder,
          builder.values().dtype(value),
          static_cast<float>(node.as<attr::full>().value),
          builder.values().sizes(value).size()));
}

} // namespace at::native::zendnn::plan
