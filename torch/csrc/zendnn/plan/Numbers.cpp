// Numbers that are computed from sizes: known when a plan is built.
#include <torch/csrc/zendnn/plan/Operators.h>

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
  const auto operand = [&](size_t index) {
    return builder.number(node.inputs.at(index));
  };
  using Compute = std::function<int64_t()>;
  const std::unordered_map<std::string, Compute> table{
      {"size",
       [&] {
         const auto& sizes = builder.sizes(tensor(node, 0));
         return sizes[wrap(operand(1), static_cast<int64_t>(sizes.size()))];
       }},
      {"numel", [&] { return count(builder.sizes(tensor(node, 0))); }},
      {"number_add", [&] { return operand(0) + operand(1); }},
      {"number_sub", [&] { return operand(0) - operand(1); }},
      {"number_mul", [&] { return operand(0) * operand(1); }},
      {"number_floordiv", [&] { return floor_divide(operand(0), operand(1)); }},
  };
  builder.set_number(node.output(), table.at(node.op)());
}

void build_nothing(Builder& /*builder*/, const Node& /*node*/) {}

} // namespace at::native::zendnn::plan
