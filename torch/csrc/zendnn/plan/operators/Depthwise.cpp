// Depthwise convolutions that ZenDNN has only general implementations for: of
// signals, and with several filters for each channel.
#include <torch/csrc/zendnn/plan/describe/Operators.h>
#include <torch/csrc/zendnn/plan/operators/Convolution.h>

#include <ATen/native/zendnn/kernels/depthwise.h>

#include <cstring>

namespace at::native::zendnn::plan {
namespace {

kernels::DepthwiseArgs
arguments(const Builder& builder, const Node& node, const Window& w) {
  const auto& in = builder.values().sizes(tensor(node, 0));
  const auto& out = builder.values().sizes(node.output());
  return {
      .batch = in[0],
      .channels = in[1],
      .filters = out[1],
      .windows = w.over(in, out),
      .dtype = kernel_type(builder.values().dtype(tensor(node, 0)))};
}

} // namespace

bool is_depthwise(const Builder& builder, const Node& node, const Window& w) {
  const auto input = tensor(node, 0);
  const auto& weight = *builder.values().constant(tensor(node, 1));
  return w.groups > 1 && weight.size(1) == 1 && !w.transposed &&
         w.kernel.size() <= 2 &&
         (!has(node, 2) || builder.values().dtype(tensor(node, 2)) ==
                               builder.values().dtype(input)) &&
         kernels::takes_windows(arguments(builder, node, w).windows) &&
         // Padding times infinity is NaN, which the kernel does not add.
         weight.isfinite().all().item<bool>();
}

Implementation
depthwise(const Builder& builder, const Node& node, const Window& w) {
  const auto row_major = [&](const Dims& sizes) {
    const auto type = type_of(builder.values().dtype(tensor(node, 0)));
    return memory::desc(sizes, type, row_major_strides(sizes));
  };
  const auto weight = builder.values().constant(tensor(node, 1))->contiguous();
  return {
      .source = row_major(builder.values().sizes(tensor(node, 0))),
      .weights = row_major(weight.sizes().vec()),
      .bias = has(node, 2) ? row_major(builder.values().sizes(tensor(node, 2)))
                           : memory::desc(),
      .result = row_major(builder.values().sizes(node.output())),
      .name = "depthwise",
      .run =
          [args = arguments(builder, node, w)](const Addresses& at) {
            auto call = args;
            call.x = at(ZENDNN_ARG_SRC);
            call.weight = at(ZENDNN_ARG_WEIGHTS);
            call.bias = at(ZENDNN_ARG_BIAS);
            call.out = at(ZENDNN_ARG_DST);
            TORCH_INTERNAL_ASSERT(kernels::depthwise(call));
          },
      .pack =
          [weight, pin = builder.values().pin(tensor(node, 1))](void* to) {
            std::memcpy(to, weight.const_data_ptr(), weight.nbytes());
          }};
}

} // namespace at::native::zendnn::plan
