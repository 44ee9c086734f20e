// A call of one of torch's operators by the names of its arguments. Those that
// are not named have their defaults.
#pragma once

#include <torch/csrc/zendnn/plan/describe/Description.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace at::native::zendnn::plan {

class TorchCall {
 public:
  // Throws c10::Error where torch has no such operator, no argument of a name,
  // or no default for an argument that is not named.
  TorchCall(
      const char* name,
      const char* overload,
      std::initializer_list<std::string_view> names)
      : operator_(
            c10::Dispatcher::singleton().findSchemaOrThrow(name, overload)) {
    const auto& known = operator_.schema().arguments();
    for (const auto wanted : names) {
      const auto found =
          std::find_if(known.begin(), known.end(), [&](const auto& argument) {
            return argument.name() == wanted;
          });
      TORCH_CHECK(found != known.end(), name, " has no argument ", wanted);
      places_.push_back(found - known.begin());
    }
    for (const auto i : c10::irange(known.size())) {
      const bool is_named =
          std::find(places_.begin(), places_.end(), i) != places_.end();
      const auto otherwise = known[i].default_value();
      TORCH_CHECK(
          is_named || otherwise, name, " needs its argument ", known[i].name());
      defaults_.push_back(otherwise.value_or(c10::IValue()));
    }
  }

  // Returns the first result of a call with these values, in the order of the
  // names.
  c10::IValue operator()(std::initializer_list<c10::IValue> values) const {
    TORCH_INTERNAL_ASSERT_DEBUG_ONLY(values.size() == places_.size());
    auto stack = defaults_;
    auto place = places_.begin();
    for (const auto& value : values) {
      stack[*place++] = value;
    }
    operator_.callBoxed(stack);
    return stack.front();
  }

 private:
  c10::OperatorHandle operator_;
  std::vector<size_t> places_;
  std::vector<c10::IValue> defaults_;
};

// The numbers, or the tensors, from an operand on.
inline Dims
numbers_from(const Node& node, const Arguments& arguments, size_t first) {
  Dims numbers;
  for (const auto i : c10::irange(first, node.inputs.size())) {
    numbers.push_back(arguments[i].toInt());
  }
  return numbers;
}

inline Tensors
tensors_from(const Node& node, const Arguments& arguments, size_t first) {
  Tensors tensors;
  for (const auto i : c10::irange(first, node.inputs.size())) {
    tensors.push_back(arguments[i].toTensor());
  }
  return tensors;
}

inline c10::IValue none_if_empty(const Dims& numbers) {
  return numbers.empty() ? c10::IValue() : c10::IValue(numbers);
}

} // namespace at::native::zendnn::plan
