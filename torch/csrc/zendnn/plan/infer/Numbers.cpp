#include <torch/csrc/zendnn/plan/build/Kernel.h>
#include <torch/csrc/zendnn/plan/infer/Numbers.h>

#include <algorithm>
#include <cmath>

namespace at::native::zendnn::plan {
namespace {

// Adds a product to a number; false where the sum exceeds 64 bits.
bool add_product(int64_t& number, int64_t a, int64_t b) {
  return !__builtin_add_overflow(number, static_cast<__int128>(a) * b, &number);
}

// The quotient, rounded down, or the remainder that goes with it.
std::optional<Number> divide(int64_t a, int64_t b, bool quotient) {
  if (b == 0) {
    refuse("a division by zero");
  }
  if (b == -1) { // the processor's division may trap
    return quotient ? sum({}, {a}, -1) : Number{0};
  }
  const auto rest = a % b;
  const bool round_down = rest != 0 && (rest < 0) != (b < 0);
  return Number{
      quotient ? a / b - (round_down ? 1 : 0) : rest + (round_down ? b : 0)};
}

// The operator's result; nothing where it is not linear in the numbers of the
// call, or exceeds 64 bits.
std::optional<Number> combined(Op op, const Number& a, const Number& b) {
  if (op == Op::number_add || op == Op::number_sub) {
    return sum(a, b, op == Op::number_add ? 1 : -1);
  }
  if (op == Op::number_mul && a.is_constant()) {
    return sum({}, b, a.constant);
  }
  if (!b.is_constant()) {
    return std::nullopt;
  }
  if (op == Op::number_mul) {
    return sum({}, a, b.constant);
  }
  return a.is_constant()
             ? divide(a.constant, b.constant, op == Op::number_floordiv)
             : std::nullopt;
}

} // namespace

std::optional<int64_t> Number::at(const Integers& numbers) const {
  auto value = constant;
  for (const auto& [index, factor] : factors) {
    if (!add_product(value, numbers.at(index), factor)) {
      return std::nullopt;
    }
  }
  return value;
}

std::optional<Number> sum(const Number& a, const Number& b, int64_t factor) {
  Number result = a;
  bool fits = add_product(result.constant, b.constant, factor);
  for (const auto& [index, number] : b.factors) {
    fits = fits && add_product(result.factors[index], number, factor);
  }
  std::erase_if(
      result.factors, [](const auto& entry) { return entry.second == 0; });
  return fits ? std::optional(result) : std::nullopt;
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

bool Conditions::Range::holds(const Integers& numbers) const {
  const auto value = number.at(numbers);
  return value && *value >= least && *value <= most;
}

bool Conditions::hold(const Integers& built, const Integers& numbers) const {
  return std::all_of(
             fixed.begin(),
             fixed.end(),
             [&](size_t index) { return built[index] == numbers[index]; }) &&
         std::all_of(ranges.begin(), ranges.end(), [&](const Range& range) {
           return range.holds(numbers);
         });
}

void infer_number(Values& values, const Node& node) {
  const auto &a = node.inputs[0], &b = node.inputs[1];
  auto result = combined(node.op, values.unbound(a), values.unbound(b));
  if (!result) {
    result = combined(node.op, {values.number(a)}, {values.number(b)});
  }
  if (!result) {
    refuse("a number beyond 64 bits");
  }
  values.set_number(node.output(), *result);
}

void infer_size(Values& values, const Node& node) {
  const auto& sizes = values.sizes(tensor(node, 0));
  const auto dim = values.number(node.inputs[1]), rank = std::ssize(sizes);
  const auto wanted = node.as<attr::size>().rank;
  if (wanted != 0 && wanted != rank) {
    refuse("sizes that are unpacked into another number of them");
  }
  values.set_number(node.output(), {sizes[wrap(dim, rank)]});
}

void infer_numel(Values& values, const Node& node) {
  values.set_number(node.output(), {count(values.sizes(tensor(node, 0)))});
}

void infer_power(Values& values, const Node& node) {
  values.unbound(node.inputs[0]); // which is no tensor
  values.set_type(node.output(), {}, c10::ScalarType::Float);
}

void build_power(Builder& builder, const Node& node) {
  const auto base = builder.values().unbound(node.inputs[0]);
  const auto exponent = static_cast<float>(node.as<attr::power>().exponent);
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
