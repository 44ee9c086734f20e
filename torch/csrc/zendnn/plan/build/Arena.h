// Memory that plans take: for what they keep, for intermediate results of a
// run, and for tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace at::native::zendnn::plan {

using Tensors = std::vector<Tensor>;
using Integers = std::vector<int64_t>;
using Dims = Integers; // sizes or strides

// Uninitialised aligned memory from torch's CPU allocator. Throws bad_alloc
// where there is none.
std::shared_ptr<void> allocate(int64_t bytes);

// What a tensor looks like.
struct TensorSpec {
  Dims sizes{}, strides{};
  c10::ScalarType dtype = c10::ScalarType::Undefined;

  bool operator==(const TensorSpec&) const = default;
};
TensorSpec spec_of(const Tensor& tensor);
// Uninitialised. Throws bad_alloc where there is no memory for it.
Tensor empty(const TensorSpec& spec);
Tensor zeros(const TensorSpec& spec);

} // namespace at::native::zendnn::plan
