// Convolutions by Winograd's method, beside ZenDNN's primitives.
#pragma once

#include <torch/csrc/zendnn/plan/Product.h>

namespace at::native::zendnn::plan {

// How a convolution's kernel moves over an image.
struct Window {
  Dims kernel, stride, dilation, before, after, extra;
  int64_t groups = 1;
  bool transposed = false;
};

// Adds the method to the implementations to choose from where it can compute
// what they compute. ZENDNN_WINOGRAD says whether it must be likely to win (1,
// the default), serves wherever it can (2) or never does (0).
void add_winograd(
    const Builder& builder,
    const Node& node,
    const Window& w,
    const Attached& attached,
    std::vector<Implementation>& found);

} // namespace at::native::zendnn::plan
