#include <torch/csrc/zendnn/plan/operators/Dot.h>

#include <ATen/native/zendnn/Dtypes.h>
#include <ATen/native/zendnn/kernels/dot.h>

namespace at::native::zendnn::plan {
namespace {

// With more, a primitive's tiles are as good.
constexpr int64_t kFew = 4;

kernels::DType type_for(const memory::desc& desc) {
  return find_dtype(&Dtype::primitive, desc.get_data_type())->kernel;
}

} // namespace

void add_dot(
    const Node& node,
    const memory::desc& weights,
    const Attached& attached,
    std::vector<Implementation>& found) {
  const auto depth = weights.get_dims()[0], outputs = weights.get_dims()[1];
  if (found.empty() || outputs > kFew || attached.accumulates ||
      !attached.operands.empty()) {
    return;
  }
  std::vector<kernels::NamedFunction> functions;
  for (size_t i = 0; i < attached.taken; ++i) {
    const auto& post = node.post[i];
    functions.push_back(
        {post.function,
         static_cast<float>(post.alpha),
         static_cast<float>(post.beta)});
  }
  const auto& first = found[0];
  kernels::DotArgs args{
      .rows = first.source.get_dims()[0],
      .depth = depth,
      .outputs = outputs,
      .x_step = row_step(first.source),
      .out_step = row_step(first.result),
      .function_count = std::ssize(functions),
      .dtype = type_for(weights),
      .out_dtype = type_for(first.result)};
  if (!first.bias.is_zero()) {
    args.bias_dtype = type_for(first.bias);
  }
  const auto type = weights.get_data_type();
  found.push_back(
      {.source = first.source,
       .weights = {{depth, outputs}, type, Dims{1, depth}},
       .bias = first.bias,
       .result = first.result,
       .plain = weights,
       .name = "dot products",
       .run = [args, functions = std::move(functions)](const Addresses& at) {
         auto call = args;
         call.x = at(ZENDNN_ARG_SRC);
         call.weight = at(ZENDNN_ARG_WEIGHTS);
         call.bias = at(ZENDNN_ARG_BIAS);
         call.out = at(ZENDNN_ARG_DST);
         call.functions = functions.data();
         kernels::dot(call);
       }});
}

} // namespace at::native::zendnn::plan
