// Comparisons, arithmetic and logic of integers, in torch's own functions.
#pragma once

#include <torch/csrc/zendnn/plan/Description.h>

#include <ATen/core/Tensor.h>

namespace at::native::zendnn::plan {

// Throws Refused for an unknown algorithm.
Tensor pair_in_torch(const Node& node, const Tensor& a, const Tensor& b);

} // namespace at::native::zendnn::plan
