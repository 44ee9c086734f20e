#include <torch/csrc/zendnn/plan/describe/Operators.h>
#include <torch/csrc/zendnn/plan/operators/Convolution.h>

#include <ATen/Parallel.h>
#include <ATen/native/zendnn/Environment.h>
#include <ATen/native/zendnn/kernels/winograd.h>

namespace at::native::zendnn::plan {
namespace {

kernels::ImageStrides image_strides(const Dims& strides) {
  return {strides[0], strides[2], strides[3]};
}

kernels::WinogradWeights winograd_weights(const Tensor& weight) {
  return {
      .weights = weight.const_data_ptr<float>(),
      .filter_stride = weight.stride(0),
      .channel_stride = weight.stride(1),
      .row_stride = weight.stride(2),
      .column_stride = weight.stride(3),
      .filters = weight.size(0),
      .channels = weight.size(1)};
}

// Opaque memory.
memory::desc bytes(int64_t size) {
  return {{size}, memory::data_type::u8, memory::format_tag::x};
}

bool suits(
    const Builder& builder,
    const Node& node,
    const Window& w,
    const memory::desc& result) {
  const Dims ones(2, 1);
  const auto is_float = [&](int64_t value) {
    return builder.values().dtype(value) == c10::ScalarType::Float;
  };
  return builder.layout() == Layout::channels_last && !w.transposed &&
         w.groups == 1 && w.kernel == Dims(2, 3) && w.stride == ones &&
         w.dilation == ones && is_float(tensor(node, 0)) &&
         (!has(node, 2) || is_float(tensor(node, 2))) &&
         result.get_inner_nblks() == 0 && result.get_strides()[1] == 1;
}

} // namespace

void add_winograd(
    const Builder& builder,
    const Node& node,
    const Window& w,
    const Attached& attached,
    std::vector<Implementation>& found) {
  const auto use = read(variables::kWinograd);
  if (use == "0" || found.empty() || attached.taken != node.post.size() ||
      !suits(builder, node, w, found[0].result)) {
    return;
  }
  const auto& result = found[0].result;
  const auto& in = builder.values().sizes(tensor(node, 0));
  const auto& out = builder.values().sizes(node.output());
  const auto unpacked =
      winograd_weights(*builder.values().constant(tensor(node, 1)));
  kernels::WinogradArgs args{
      .unpacked = unpacked,
      .x_strides = image_strides(channels_last_strides(in)),
      .out_strides = image_strides(result.get_strides()),
      .batch = in[0],
      .height = in[2],
      .width = in[3],
      .channels = in[1],
      .filters = out[1],
      .pad_top = w.before[0],
      .pad_left = w.before[1],
      .out_height = out[2],
      .out_width = out[3],
      .threads = at::get_num_threads()};
  int addend = ZENDNN_ARG_UNDEF;
  for (size_t i = 0; i < node.post.size(); ++i) {
    const auto& post = node.post[i];
    const bool last = i + 1 == node.post.size();
    if (post.is(kernels::Binary::add) && i == 0 &&
        (attached.accumulates || attached.operands[0].desc == result)) {
      addend =
          attached.accumulates ? ZENDNN_ARG_DST : attached.operands[0].index;
    } else if (post.is(kernels::Eltwise::relu) && last) {
      args.low = 0;
    } else if (post.is(kernels::Eltwise::clip) && last) {
      args.low = post.alpha;
      args.high = post.beta;
    } else {
      return;
    }
  }
  if (use != "2" && !kernels::winograd_takes(args)) {
    return;
  }
  Implementation implementation{
      .source = {in, memory::data_type::f32, channels_last_strides(in)},
      .weights = bytes(kernels::winograd_packed_bytes(unpacked)),
      .bias = found[0].bias,
      .result = result,
      .scratchpad = bytes(kernels::winograd_scratch_bytes(args)),
      .name = "winograd",
      .run =
          [args, addend](const Addresses& at) {
            const auto floats = [&](int argument) {
              return static_cast<float*>(at(argument));
            };
            auto call = args;
            call.x = floats(ZENDNN_ARG_SRC);
            call.weights = floats(ZENDNN_ARG_WEIGHTS);
            call.bias = floats(ZENDNN_ARG_BIAS);
            call.addend = floats(addend);
            call.out = floats(ZENDNN_ARG_DST);
            call.scratch = at(ZENDNN_ARG_SCRATCHPAD);
            kernels::winograd(call);
          },
      .pack =
          [unpacked, pin = builder.values().pin(tensor(node, 1))](void* to) {
            auto packing = unpacked;
            packing.packed = static_cast<float*>(to);
            kernels::winograd_pack(packing);
          },
      .loss = 32}; // its transforms lose some digits
  if (use == "2") {
    found.clear();
  }
  found.push_back(std::move(implementation));
}

} // namespace at::native::zendnn::plan
