// Convolutions by kernels of ours, beside ZenDNN's primitives.
#pragma once

#include <torch/csrc/zendnn/plan/build/Product.h>
#include <torch/csrc/zendnn/plan/operators/Window.h>

namespace at::native::zendnn::plan {

// Adds Winograd's method to the implementations to choose from where it can
// compute what they compute. ZENDNN_WINOGRAD says whether it must be likely to
// win (1, the default), serves wherever it can (2) or never does (0).
void add_winograd(
    const Builder& builder,
    const Node& node,
    const Window& w,
    const Attached& attached,
    std::vector<Implementation>& found);

// Whether each channel has filters of its own, which the kernel for planes
// applies to it.
bool is_depthwise(const Builder& builder, const Node& node, const Window& w);
// That kernel: on row-major images, without post-ops.
Implementation
depthwise(const Builder& builder, const Node& node, const Window& w);

} // namespace at::native::zendnn::plan
