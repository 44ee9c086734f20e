// Pooling of plain images on our own kernels.
#include <ATen/native/zendnn/cpu/Overrides.h>

#include <ATen/CPUFunctions.h>
#include <ATen/native/Pool.h>
#include <ATen/native/zendnn/cpu/Kernels.h>
#include <ATen/native/zendnn/kernels/max_pool.h>

#include <limits>

namespace at::native::zendnn::cpu {
namespace {

// Indices, including those in the padding, fit 32 bits.
constexpr int64_t kLargestPlane = 1 << 30;
constexpr Reason kWindows = "windows that lie in the padding, or too large";

// One value applies to both dimensions.
struct Parameter {
  explicit Parameter(IntArrayRef values)
      : down(values.front()), across(values.back()) {}
  int64_t down, across;
};

bool is_pair(IntArrayRef values) {
  return values.size() == 1 || values.size() == 2;
}

// Along one dimension: whether torch accepts the windows, and each contains a
// part of the image.
bool takes_windows_along(
    int64_t size,
    int64_t kernel,
    int64_t stride,
    int64_t pad,
    int64_t dilation) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return size > 0 && kernel > 0 && kernel <= kMost && stride > 0 &&
         stride <= kMost && dilation > 0 && dilation <= kMost && pad >= 0 &&
         pad <= kernel / 2 && (pad == 0 || dilation == 1);
}

// Sets the windows of a pooling, or returns why it is refused.
Reason set_windows(
    kernels::Windows& windows,
    const Tensor& self,
    IntArrayRef kernel_size,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool ceil_mode) {
  const auto dim = self.dim();
  if (const auto reason = why_no_operand(self)) {
    return reason;
  }
  if (dim < 3 || dim > 4 || !is_pair(kernel_size) ||
      !(stride.empty() || is_pair(stride)) || !is_pair(padding) ||
      !is_pair(dilation)) {
    return why::kSizes;
  }
  if (self.numel() == 0) {
    return why::kEmpty;
  }
  if (!self.is_contiguous() ||
      self.suggest_memory_format() != MemoryFormat::Contiguous) {
    return why::kOrder;
  }
  const Parameter kernel(kernel_size), pad(padding), apart(dilation);
  const Parameter step(stride.empty() ? kernel_size : stride);
  const auto height = self.size(dim - 2), width = self.size(dim - 1);
  if (!takes_windows_along(
          height, kernel.down, step.down, pad.down, apart.down) ||
      !takes_windows_along(
          width, kernel.across, step.across, pad.across, apart.across) ||
      height * width > kLargestPlane) {
    return kWindows;
  }
  windows = {
      .height = height,
      .width = width,
      .out_height = pooling_output_shape<int64_t>(
          height, kernel.down, pad.down, step.down, apart.down, ceil_mode),
      .out_width = pooling_output_shape<int64_t>(
          width,
          kernel.across,
          pad.across,
          step.across,
          apart.across,
          ceil_mode),
      .kernel_height = kernel.down,
      .kernel_width = kernel.across,
      .stride_down = step.down,
      .stride_across = step.across,
      .dilation_down = apart.down,
      .dilation_across = apart.across,
      .pad_top = pad.down,
      .pad_left = pad.across};
  return windows.out_height > 0 && windows.out_width > 0 &&
                 kernels::takes_windows(windows)
             ? nullptr
             : kWindows;
}

Reason why_not_max_pool(
    const Tensor& self,
    IntArrayRef kernel_size,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool ceil_mode) {
  kernels::Windows windows;
  return set_windows(
      windows, self, kernel_size, stride, padding, dilation, ceil_mode);
}

std::tuple<Tensor, Tensor> max_pool(
    const Tensor& self,
    IntArrayRef kernel_size,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool ceil_mode) {
  kernels::MaxPoolArgs args;
  set_windows(
      args.windows, self, kernel_size, stride, padding, dilation, ceil_mode);
  const auto& windows = args.windows;
  DimVector sizes(self.sizes());
  sizes.end()[-2] = windows.out_height;
  sizes.end()[-1] = windows.out_width;
  Tensor out = at::detail::empty_cpu(sizes, self.options());
  Tensor indices = at::detail::empty_cpu(sizes, self.options().dtype(kLong));
  args.x = self.const_data_ptr();
  args.out = out.mutable_data_ptr();
  args.indices = indices.mutable_data_ptr<int64_t>();
  args.planes = self.numel() / (windows.height * windows.width);
  args.dtype = kernel_dtype(self);
  prepare_kernel(zendnn_pooling);
  kernels::max_pool(args);
  return {std::move(out), std::move(indices)};
}

} // namespace

void list_pooling(torch::Library& m) {
  add_rows<
      Row<"aten::max_pool2d_with_indices", // .05-.57, .05-.56
          Needs::vectors,
          why_not_max_pool,
          max_pool,
          at::cpu::max_pool2d_with_indices>>(m);
}

} // namespace at::native::zendnn::cpu
