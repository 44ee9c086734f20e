// The dtypes that ZenDNN computes in: a row for each, which the build generates
// from torch/backends/zendnn/table/dtypes.py.
#pragma once

#include <ATen/native/zendnn/Cpu.h>
#include <ATen/native/zendnn/kernels/types.h>
#include <c10/core/ScalarType.h>
#include <oneapi/zendnn/zendnn.hpp>

#include <array>
#include <string_view>
#include <type_traits>

namespace at::native::zendnn {

// Sums are float32 in all of them.
struct Dtype {
  ScalarType scalar;
  std::string_view name; // in descriptions of plans
  ::zendnn::memory::data_type primitive;
  kernels::DType kernel;
  std::array<Isa, 2> needs; // one of these, for primitives; our kernels do not
  double rounding;          // how far it parts two results, relative to them
};

inline constexpr auto kDtypes = [] {
  using enum kernels::DType;
  using enum ::zendnn::memory::data_type;
  return std::array{
#include <ATen/native/zendnn/DtypeRows.inc>
  };
}();

// The row with this entry in a column, or null.
template <class T>
constexpr const Dtype* find_dtype(
    T Dtype::* column,
    const std::type_identity_t<T>& entry) {
  for (const auto& row : kDtypes) {
    if (row.*column == entry) {
      return &row;
    }
  }
  return nullptr;
}

constexpr const Dtype* find_dtype(ScalarType scalar) {
  return find_dtype(&Dtype::scalar, scalar);
}

// The dtypes that kernels convert, which ZenDNN need not compute in.
struct KernelDtype {
  ScalarType scalar;
  kernels::DType kernel;
  double tolerance; // of a region's results, relative to the largest
};

inline constexpr auto kKernelDtypes = std::to_array<KernelDtype>({
#include <ATen/native/zendnn/KernelDtypeRows.inc>
});

// The row, or null.
constexpr const KernelDtype* find_kernel_dtype(ScalarType scalar) {
  for (const auto& row : kKernelDtypes) {
    if (row.scalar == scalar) {
      return &row;
    }
  }
  return nullptr;
}

// Calls f with a zero of the C++ type of the elements.
template <size_t kRow = 0, class F>
decltype(auto) with_type(const Dtype& dtype, F f) {
  if constexpr (kRow + 1 < kDtypes.size()) {
    if (&dtype != &kDtypes[kRow]) {
      return with_type<kRow + 1>(dtype, f);
    }
  }
  return f(c10::impl::ScalarTypeToCPPTypeT<kDtypes[kRow].scalar>());
}

} // namespace at::native::zendnn
