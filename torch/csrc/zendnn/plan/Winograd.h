// Convolutions by Winograd's method, beside ZenDNN's primitives.
#pragma once

#include <torch/csrc/zendnn/plan/PostOps.h>
#include <torch/csrc/zendnn/plan/Trial.h>

#include <ATen/native/zendnn/kernels/winograd.h>

namespace at::native::zendnn::plan {

// How a convolution's kernel moves over an image.
struct Window {
  int64_t spatial = 0;
  Dims kernel, stride, dilation, before, after, extra;
  int64_t groups = 1;
  bool transposed = false;
};

// A convolution by Winograd's method, and the operand that it adds.
struct Winograd {
  kernels::WinogradArgs args;
  Operand addend;
};

// ZENDNN_WINOGRAD: whether plans convolve by Winograd's method never, where it
// is faster, or wherever they can.
enum class Use : uint8_t { never, timed, always };
Use winograd_use();

// What the kernel needs to know but places, when it does this convolution.
std::optional<Winograd>
winograd_of(const Builder& builder, const Node& node, const Window& w);

// Compared with the primitives where it adds what they add, if anything.
Candidate as_candidate(
    const Winograd& winograd,
    const Tensor& weight,
    const memory::desc& bias,
    const Attached& attached,
    bool comparable,
    const std::shared_ptr<Trial>& trial);

// It writes into channels-last places, whatever lies between the pixels.
bool is_aim(const std::optional<Place>& place);

void build_winograd(
    Builder& builder,
    const Node& node,
    const Winograd& winograd,
    const std::optional<Place>& accumulator,
    Ref bias,
    double flops);

} // namespace at::native::zendnn::plan
