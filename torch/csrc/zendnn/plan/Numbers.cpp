// Numbers that are computed from sizes: known when a plan is built.
#include <torch/csrc/zendnn/plan/Operators.h>

#include <cmath>
#include <sstream>

namespace at::native::zendnn::plan {
namespace {

// Each computes a number and returns whether it does not fit in 64 bits.
using Arithmetic = bool (*)(int64_t a, int64_t b, int64_t* result);

bool add(int64_t a, int64_t b, int64_t* sum) {
  return __builtin_add_overflow(a, b, sum);
}

bool subtract(int64_t a, int64_t b, int64_t* difference) {
  return __builtin_sub_overflow(a, b, difference);
}

bool multiply(int64_t a, int64_t b, int64_t* product) {
  return __builtin_mul_overflow(a, b, product);
}

bool floor_divide(int64_t a, int64_t b, int64_t* quotient) {
  if (b == 0) {
    refuse("a division by zero");
  }
  if (b == -1) { // not a / b, which may trap
    return subtract(0, a, quotient);
  }
  *quotient = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
  return false;
}

bool remainder(int64_t a, int64_t b, int64_t* rest) {
  if (b == 0) {
    refuse("a division by zero");
  }
  *rest = b == -1 ? 0 : a % b; // the first may trap
  *rest += *rest != 0 && (*rest < 0) != (b < 0) ? b : 0;
  return false;
}

} // namespace

void infer_number(Builder& builder, const Node& node) {
  static const std::unordered_map<std::string, Arithmetic> table{
      {"number_add", add},
      {"number_sub", subtract},
      {"number_mul", multiply},
      {"number_floordiv", floor_divide},
      {"number_remainder", remainder},
  };
  const auto a = builder.number(node.inputs[0]);
  const auto b = builder.number(node.inputs[1]);
  int64_t result = 0;
  if (table.at(node.op)(a, b, &result)) {
    refuse("a number beyond 64 bits");
  }
  builder.set_number(node.output(), result);
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
      static_cast<float>(node.get(attr::power::exponent)));
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
