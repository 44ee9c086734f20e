// Linear layers of few outputs by a kernel of ours, beside ZenDNN's primitives.
#pragma once

#include <torch/csrc/zendnn/plan/build/Product.h>

namespace at::native::zendnn::plan {

// Adds the kernel to the implementations to choose from, where the outputs are
// few and it can compute what those do. `weights` says how the weights of
// (in, out) lie.
void add_dot(
    const Node& node,
    const memory::desc& weights,
    const Attached& attached,
    std::vector<Implementation>& found);

} // namespace at::native::zendnn::plan
