// Checks of weights, biases and statistics for our own normalisation kernels.
#pragma once

#include <ATen/native/zendnn/cpu/Kernels.h>

#include <functional>
#include <initializer_list>
#include <optional>

namespace at::native::zendnn::cpu {

using Parameter = std::optional<Tensor>;

// Whether a parameter is missing, or has this shape and x's dtype or, for a
// bfloat16 x, float32.
inline bool takes_parameter(
    const Parameter& parameter,
    IntArrayRef shape,
    const Tensor& x) {
  return !has(parameter) ||
         (is_kernel_operand(*parameter) && parameter->sizes() == shape &&
          parameter->is_contiguous() &&
          (parameter->scalar_type() == x.scalar_type() ||
           parameter->scalar_type() == kFloat));
}

// The dtype of the parameters and statistics, or x's if there are none;
// undefined if they differ.
inline ScalarType parameter_type(
    std::initializer_list<std::reference_wrapper<const Parameter>> parameters,
    const Tensor& x) {
  std::optional<ScalarType> type;
  for (const Parameter& parameter : parameters) {
    if (has(parameter)) {
      if (type.value_or(parameter->scalar_type()) != parameter->scalar_type()) {
        return ScalarType::Undefined;
      }
      type = parameter->scalar_type();
    }
  }
  return type.value_or(x.scalar_type());
}

inline const void* data_or_null(const Parameter& parameter) {
  return has(parameter) ? parameter->const_data_ptr() : nullptr;
}

} // namespace at::native::zendnn::cpu
