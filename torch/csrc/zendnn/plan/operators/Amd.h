// Linear layers by AMD's library, beside ZenDNN's primitives.
#pragma once

#include <torch/csrc/zendnn/plan/build/Product.h>

namespace at::native::zendnn::plan {

// Adds AOCL-DLP's product to the implementations to choose from, where it is
// installed and can compute what they compute. `weights` says how the weights
// of (in, out) lie.
void add_amd(
    const Builder& builder,
    const Node& node,
    const memory::desc& weights,
    const Attached& attached,
    std::vector<Implementation>& found);

} // namespace at::native::zendnn::plan
