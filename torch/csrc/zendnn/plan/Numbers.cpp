#include <torch/csrc/zendnn/plan/Kernel.h>
#include <torch/csrc/zendnn/plan/Numbers.h>

#include <algorithm>
#include <cmath>

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

// The same of linear functions; nothing where the result is none.
std::optional<Number>
linear_result(const std::string& op, const Number& a, const Number& b) {
  if (op == "number_add" || op == "number_sub") {
    return sum(a, b, op == "number_add" ? 1 : -1);
  }
  if (op == "number_mul" && (a.is_constant() || b.is_constant())) {
    return a.is_constant() ? sum({}, b, a.constant) : sum({}, a, b.constant);
  }
  return std::nullopt;
}

} // namespace

std::optional<int64_t> Number::at(const std::vector<int64_t>& numbers) const {
  int64_t value = constant, term = 0;
  for (const auto& [index, factor] : factors) {
    if (multiply(numbers.at(index), factor, &term) ||
        add(value, term, &value)) {
      return std::nullopt;
    }
  }
  return value;
}

std::optional<Number> sum(const Number& a, const Number& b, int64_t factor) {
  Number result = a;
  int64_t term = 0;
  const auto add_to = [&](int64_t& target, int64_t number) {
    return !multiply(number, factor, &term) && !add(target, term, &target);
  };
  if (!add_to(result.constant, b.constant)) {
    return std::nullopt;
  }
  for (const auto& [index, number] : b.factors) {
    if (!add_to(result.factors[index], number)) {
      return std::nullopt;
    }
  }
  std::erase_if(
      result.factors, [](const auto& entry) { return entry.second == 0; });
  return result;
}

void Conditions::fix(const Number& number) {
  for (const auto& [index, factor] : number.factors) {
    fixed.insert(index);
  }
}

void Conditions::keep(const Range& range) {
  if (std::find(ranges.begin(), ranges.end(), range) == ranges.end()) {
    ranges.push_back(range);
  }
}

bool Conditions::hold(
    const std::vector<int64_t>& built,
    const std::vector<int64_t>& given) const {
  return std::all_of(
             fixed.begin(),
             fixed.end(),
             [&](size_t index) { return built[index] == given[index]; }) &&
         std::all_of(ranges.begin(), ranges.end(), [&](const Range& range) {
           const auto value = range.number.at(given);
           return value && *value >= range.least && *value <= range.most;
         });
}

void infer_number(Values& values, const Node& node) {
  static const std::unordered_map<std::string, Arithmetic> table{
      {"number_add", add},
      {"number_sub", subtract},
      {"number_mul", multiply},
      {"number_floordiv", floor_divide},
      {"number_remainder", remainder},
  };
  const auto linear = linear_result(
      node.op, values.unbound(node.inputs[0]), values.unbound(node.inputs[1]));
  if (linear) {
    values.set_number(node.output(), *linear);
    return;
  }
  const auto a = values.number(node.inputs[0]);
  const auto b = values.number(node.inputs[1]);
  int64_t result = 0;
  if (table.at(node.op)(a, b, &result)) {
    refuse("a number beyond 64 bits");
  }
  values.set_number(node.output(), {result});
}

void infer_size(Values& values, const Node& node) {
  const auto& sizes = values.sizes(tensor(node, 0));
  const auto dim = values.number(node.inputs[1]);
  values.set_number(
      node.output(), {sizes[wrap(dim, static_cast<int64_t>(sizes.size()))]});
}

void infer_numel(Values& values, const Node& node) {
  values.set_number(node.output(), {count(values.sizes(tensor(node, 0)))});
}

void infer_power(Values& values, const Node& node) {
  values.unbound(node.inputs[0]); // which is no tensor
  values.set_type(node.output(), {}, c10::ScalarType::Float);
}

void build_power(Builder& builder, const Node& node) {
  const auto base = builder.unbound(node.inputs[0]);
  const auto exponent = static_cast<float>(node.get(attr::power::exponent));
  if (!base.is_constant()) {
    const auto to = builder.make_dense(node.output());
    builder.add_kernel(
        node, "power", {to.ref}, [base, exponent, to](const Frame& frame) {
          *frame.at<float>(to.ref) =
              std::pow(static_cast<float>(frame.value(base)), exponent);
        });
    return;
  }
  const auto power = std::pow(static_cast<float>(base.constant), exponent);
  builder.set_place(node.output(), place_number(builder, kFloat, power));
}

void build_nothing(Builder& /*builder*/, const Node& /*node*/) {}

} // namespace at::native::zendnn::plan
