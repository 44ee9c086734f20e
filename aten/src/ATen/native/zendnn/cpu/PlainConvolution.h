// Convolutions that read plain images and kernels and write a plain image.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace at::native::zendnn::cpu {

// Up to this many multiply-adds a convolution is faster in plain layout,
// whatever its shape.
constexpr int64_t kLittleWork = 1 << 21;

// The convolution of images (n, channels, height, width) with kernels (filters,
// channels / groups, down, across), of one type, float32 or bfloat16; the bias
// is contiguous, and parameters have one value or two. Returns nothing, and
// copies nothing, where ZenDNN would bring them into blocks first, or is faster
// when it does: always if groups have more than one channel.
std::optional<Tensor> convolve_plain(
    const Tensor& input,
    const Tensor& weight,
    const Tensor& bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    int64_t groups);

} // namespace at::native::zendnn::cpu
