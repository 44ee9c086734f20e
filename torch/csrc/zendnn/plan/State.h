// States: tensors that a region is given and writes to, in the order of its
// nodes.
#pragma once

#include <torch/csrc/zendnn/plan/Arena.h>
#include <torch/csrc/zendnn/plan/Description.h>

#include <set>

namespace at::native::zendnn::plan {

// Their positions among the tensors that the region is given.
std::set<size_t> states_of(const Description& region);

// Whether torch's own operators could write to them: they refuse an inference
// tensor outside of inference mode.
bool are_writable(const std::set<size_t>& states, const Tensors& tensors);

// Whether nothing that is written shares memory with another of these tensors.
bool are_apart(const std::set<size_t>& states, const Tensors& tensors);

} // namespace at::native::zendnn::plan
