// Dispatch stubs through which the generated convolution and RNN kernels are
// reached; torch's own stubs of the same types keep torch's own kernels.
#pragma once

#include <ATen/native/DispatchStub.h>
#include <ATen/native/RNN.h>

#include <array>
#include <optional>
#include <tuple>

namespace at::native {

using zendnn_convolution_backward_fn = std::tuple<Tensor, Tensor, Tensor> (*)(
    const Tensor& input,
    const Tensor& grad_output,
    const Tensor& weight,
    IntArrayRef padding,
    IntArrayRef stride,
    IntArrayRef dilation,
    int64_t groups,
    std::array<bool, 3> output_mask);
DECLARE_DISPATCH(
    zendnn_convolution_backward_fn,
    zendnn_convolution_backward_stub)

using zendnn_convolution_transpose_fn = Tensor (*)(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    IntArrayRef padding,
    IntArrayRef output_padding,
    IntArrayRef stride,
    IntArrayRef dilation,
    int64_t groups);
DECLARE_DISPATCH(
    zendnn_convolution_transpose_fn,
    zendnn_convolution_transpose_stub)

using zendnn_convolution_transpose_backward_fn =
    std::tuple<Tensor, Tensor, Tensor> (*)(
        const Tensor& input,
        const Tensor& grad_output,
        const Tensor& weight,
        IntArrayRef padding,
        IntArrayRef output_padding,
        IntArrayRef stride,
        IntArrayRef dilation,
        int64_t groups,
        std::array<bool, 3> output_mask);
DECLARE_DISPATCH(
    zendnn_convolution_transpose_backward_fn,
    zendnn_convolution_transpose_backward_stub)

DECLARE_DISPATCH(lstm_fn, lstm_zendnn_stub)

} // namespace at::native
