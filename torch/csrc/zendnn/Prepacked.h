// What Python calls of prepacked layers without the detour through torch.ops,
// which costs small layers more than packed weights save.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace at::native::zendnn {

// The operator zendnn::prepacked for a linear layer, through the dispatcher.
C10_EXPORT Tensor prepacked_linear(
    const Tensor& x,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    int64_t layer);

} // namespace at::native::zendnn
