// Numbers that are computed from sizes: known when a plan is built.
#include <torch/csrc/zendnn/plan/Operators.h>

#include <cmath>
#include <sstream>

namespace at::native::zendnn::plan {
namespace {

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) {
    refuse("a division by zero");
  }
  const auto quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

} // namespace

void infer_number(Builder& builder, const Node& node) {
  using Compute = int64_t (*)(int64_t, int64_t);
  static const std::unordered_map<std::string, Compute> table{
      {"number_add", [](int64_t a, int64_t b) { return a + b; }},
      {"number_sub", [](int64_t a, int64_t b) { return a - b; }},
      {"number_mul", [](int64_t a, int64_t b) { return a * b; }},
      {"number_floordiv", floor_divide},
      {"number_remainder",
       [](int64_t a, int64_t b) { return a - b * floor_divide(a, b); }},
  };
  builder.set_number(
      node.output(),
      table.at(node.op)(
          builder.number(node.inputs[0]), builder.number(node.inputs[1])));
}

void infer_size(Builder& builder, const Node& node) {
  const auto& sizes = builder.sizes(tensor(node, 0));
  const auto dim = builder.number(node.inputs[1]);
  builder.set_number(
      node.output(), sizes[wrap(dim, static_cast<int64_t>(sizes.size()))]);
}

void infer_numel(Builder& builder, const Node& node) {
  builder.set_number(node.output(), count(builder.sizes(tensor(node, 0))));
}

void infer_power(Builder& builder, const Node& node) {
  builder.number(node.inputs[0]);
  builder.set_type(node.output(), {}, c10::ScalarType::Float);
}

void build_power(Builder& builder, const Node& node) {
  const auto power = std::pow(
      static_cast<float>(builder.number(node.inputs[0])),
      static_cast<float>(node.real("exponent", 1)));
  std::ostringstream key;
  key << "number " << std::hexfloat << power;
  builder.set_place(
      node.output(),
      {.ref = builder.prepared(key.str(), sizeof(float), [power](void* memory) {
        *static_cast<float*>(memory) = power;
      })});
}

void build_nothing(Builder& /*builder*/, const Node& /*node*/) {}

} // namespace at::native::zendnn::plan
