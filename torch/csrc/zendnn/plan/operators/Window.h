// How the window of a convolution or a pooling moves over images.
#pragma once

#include <torch/csrc/zendnn/plan/infer/Layouts.h>

#include <ATen/native/zendnn/kernels/windows.h>

namespace at::native::zendnn::plan {

// A number for each spatial dimension.
struct Window {
  Dims kernel, stride, dilation, before, after, extra;
  int64_t groups = 1;
  bool transposed = false;

  // From the first element of a window to the last.
  int64_t reach(size_t i) const {
    return dilation[i] * (kernel[i] - 1) + 1;
  }

  // For our kernels: of an image, or of a signal as an image of one row.
  kernels::Windows over(const Dims& in, const Dims& out) const {
    kernels::Windows windows{
        .height = 1,
        .width = in.back(),
        .out_height = 1,
        .out_width = out.back(),
        .kernel_height = 1,
        .kernel_width = kernel.back(),
        .stride_across = stride.back(),
        .dilation_across = dilation.back(),
        .pad_left = before.back()};
    if (kernel.size() == 2) {
      windows.height = in[2];
      windows.out_height = out[2];
      windows.kernel_height = kernel[0];
      windows.stride_down = stride[0];
      windows.dilation_down = dilation[0];
      windows.pad_top = before[0];
    }
    return windows;
  }
};

} // namespace at::native::zendnn::plan
