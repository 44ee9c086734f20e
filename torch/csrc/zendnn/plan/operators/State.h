// States: tensors that a region is given and writes to, in its nodes' order.
#pragma once

#include <torch/csrc/zendnn/plan/build/Arena.h>
#include <torch/csrc/zendnn/plan/describe/Description.h>

#include <set>

namespace at::native::zendnn::plan {

// Their positions among the tensors that the region is given.
std::set<size_t> states_of(const Description& region);

// Whether torch's own operators would write to them, too: outside of inference
// mode, inference tensors are read-only.
bool are_writable(const std::set<size_t>& states, const Tensors& tensors);

// Whether nothing that is written shares memory with another of these tensors.
bool are_apart(const std::set<size_t>& states, const Tensors& tensors);

} // namespace at::native::zendnn::plan
