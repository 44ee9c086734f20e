// Convolutions that read plain images and kernels and write a plain image.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace at::native::zendnn::cpu {

// Whether plain images of so many points, each multiplied by the weights of
// kernels of one point, are faster than all at once in blocks: each reads all
// weights anew.
bool are_faster_one_by_one(int64_t batch, int64_t points, int64_t weights);

// The convolution of images (n, channels, height, width) with kernels (filters,
// channels / groups, down, across), both float32 or both bfloat16. The bias is
// contiguous, and parameters have one value or two. Returns nothing, without
// any copy, if ZenDNN would reorder into blocks or is faster that way, as
// always for groups of more than one channel.
//
// Images may also be signals (n, channels, width), with parameters of one
// value, in the question whether it would.
bool convolves_plain(
    const Tensor& input,
    const Tensor& weight,
    bool has_bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    int64_t groups);
std::optional<Tensor> convolve_plain(
    const Tensor& input,
    const Tensor& weight,
    const Tensor& bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    int64_t groups);

} // namespace at::native::zendnn::cpu
