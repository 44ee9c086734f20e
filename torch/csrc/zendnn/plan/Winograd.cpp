#include <torch/csrc/zendnn/plan/Kernel.h>
#include <torch/csrc/zendnn/plan/Primitive.h>
#include <torch/csrc/zendnn/plan/Winograd.h>

#include <ATen/Parallel.h>
#include <ATen/native/zendnn/Environment.h>

namespace at::native::zendnn::plan {
namespace {

kernels::ImageStrides image_strides(const Dims& strides) {
  return {strides[0], strides[2], strides[3]};
}

kernels::WinogradWeights winograd_weights(const Tensor& weight) {
  kernels::WinogradWeights weights;
  weights.weights = weight.const_data_ptr<float>();
  weights.filter_stride = weight.stride(0);
  weights.channel_stride = weight.stride(1);
  weights.row_stride = weight.stride(2);
  weights.column_stride = weight.stride(3);
  weights.filters = weight.size(0);
  weights.channels = weight.size(1);
  return weights;
}

} // namespace

Use winograd_use() {
  const auto use = word_from("ZENDNN_WINOGRAD", {"1", "0", "2"});
  return use == "0" ? Use::never : use == "2" ? Use::always : Use::timed;
}

std::optional<Winograd>
winograd_of(const Builder& builder, const Node& node, const Window& w) {
  const Dims ones(2, 1);
  const auto& in = builder.sizes(tensor(node, 0));
  const auto& out = builder.sizes(node.output());
  if (builder.layout() != Layout::channels_last || w.transposed ||
      w.groups != 1 || w.kernel != Dims(2, 3) || w.stride != ones ||
      w.dilation != ones ||
      builder.dtype(tensor(node, 0)) != c10::ScalarType::Float ||
      (has(node, 2) &&
       builder.dtype(tensor(node, 2)) != c10::ScalarType::Float) ||
      winograd_use() == Use::never) {
    return std::nullopt;
  }
  Winograd made;
  auto& args = made.args;
  for (size_t i = 0; i < node.post.size(); ++i) {
    const auto& post = node.post[i];
    const bool last = i + 1 == node.post.size();
    if (post.algorithm == "add" && post.is_binary() && i == 0 &&
        builder.sizes(node.inputs[post.operand].index) == out) {
      made.addend = node.inputs[post.operand];
    } else if (post.algorithm == "relu" && last) {
      args.low = 0;
    } else if (post.algorithm == "clip" && last) {
      args.low = post.alpha;
      args.high = post.beta;
    } else {
      return std::nullopt;
    }
  }
  args.batch = in[0];
  args.channels = in[1];
  args.height = in[2];
  args.width = in[3];
  args.filters = out[1];
  args.out_height = out[2];
  args.out_width = out[3];
  args.pad_top = w.before[0];
  args.pad_left = w.before[1];
  args.x_strides = image_strides(channels_last_strides(in));
  args.out_strides = image_strides(channels_last_strides(out));
  args.threads = at::get_num_threads();
  return winograd_use() == Use::always || kernels::winograd_takes(args)
             ? std::optional(made)
             : std::nullopt;
}

Candidate as_candidate(
    const Winograd& winograd,
    const Tensor& weight,
    const memory::desc& bias,
    const Attached& attached,
    bool comparable,
    const std::shared_ptr<Trial>& trial) {
  using type = memory::data_type;
  const auto& args = winograd.args;
  const auto image = [](int64_t n, int64_t c, int64_t h, int64_t w) {
    return memory::desc({n, c, h, w}, type::f32, memory::format_tag::nhwc);
  };
  const auto source = image(args.batch, args.channels, args.height, args.width);
  const auto result =
      image(args.batch, args.filters, args.out_height, args.out_width);
  const bool accumulates = attached.accumulator.has_value();
  comparable =
      comparable &&
      (!winograd.addend || accumulates ||
       (attached.operands.size() == 1 && attached.operands[0].desc == result));
  const auto call = std::make_shared<kernels::WinogradArgs>(args);
  const auto run = [call] { kernels::winograd(*call); };
  const auto prepare = [=, adds = static_cast<bool>(winograd.addend)] {
    const auto floats = [](void* data) { return static_cast<float*>(data); };
    auto packing = winograd_weights(weight);
    packing.packed = floats(
        trial->at(ZENDNN_ARG_WEIGHTS, kernels::winograd_packed_bytes(packing)));
    kernels::winograd_pack(packing);
    call->weights = packing.packed;
    call->unpacked = packing;
    call->x = floats(trial->operand(ZENDNN_ARG_SRC, source));
    call->out = floats(trial->destination(result, accumulates));
    call->addend =
        !adds ? nullptr
        : accumulates || !comparable
            ? call->out
            : floats(trial->operand(attached.operands[0].index, result));
    call->bias = bias.is_zero() ? nullptr
                                : floats(trial->operand(ZENDNN_ARG_BIAS, bias));
    call->scratch = trial->at(
        ZENDNN_ARG_SCRATCHPAD, kernels::winograd_scratch_bytes(*call));
  };
  const auto before = [call, weight] {
    evict_weights(
        const_cast<float*>(call->weights),
        kernels::winograd_packed_bytes(winograd_weights(weight)));
  };
  // Its transforms lose some digits.
  constexpr double kLoss = 32;
  Candidate made{
      .name = "winograd",
      .run =
          [call, prepare, run] {
            if (call->x == nullptr) {
              prepare();
            }
            run();
          },
      .before = before,
      .precision = kLoss * trial->precision()};
  if (comparable) {
    made.compute = [=] {
      prepare();
      run();
      return outcome_of(result, call->out);
    };
  }
  return made;
}

bool is_aim(const std::optional<Place>& place) {
  return place && !place->blocked && place->strides[1] == 1;
}

void build_winograd(
    Builder& builder,
    const Node& node,
    const Winograd& winograd,
    const std::optional<Place>& accumulator,
    Ref bias,
    double flops) {
  const auto input = tensor(node, 0), output = node.output();
  const auto layout = [&](int64_t value) -> memory::desc {
    const auto& sizes = builder.sizes(value);
    return {sizes, memory::data_type::f32, channels_last_strides(sizes)};
  };
  auto args = winograd.args;
  const auto from = builder.in_layout(input, layout(input));
  Place to;
  Ref addend;
  const auto target = builder.target(output);
  if (is_aim(accumulator) || is_aim(target)) {
    to = is_aim(accumulator) ? *accumulator : *target;
    builder.set_place(output, to);
  } else {
    to = builder.make(output, layout(output));
  }
  args.out_strides = image_strides(builder.describe(output, to).get_strides());
  if (winograd.addend) {
    addend =
        builder.in_layout(winograd.addend.index, builder.describe(output, to));
  }
  const auto weights = winograd_weights(*builder.constant(tensor(node, 1)));
  args.unpacked = weights;
  const auto packed = builder.prepared(
      "winograd " + std::to_string(tensor(node, 1)),
      kernels::winograd_packed_bytes(weights),
      [weights](void* memory) {
        auto packing = weights;
        packing.packed = static_cast<float*>(memory);
        kernels::winograd_pack(packing);
      });
  const auto scratch = builder.scratch(kernels::winograd_scratch_bytes(args));
  using Args = kernels::WinogradArgs;
  add_kernel(
      builder,
      node,
      "winograd",
      kernels::winograd,
      args,
      {{&Args::x, from},
       {&Args::out, to.ref},
       {&Args::addend, addend},
       {&Args::bias, bias},
       {&Args::weights, packed},
       {&Args::scratch, scratch}},
      flops);
}

} // namespace at::native::zendnn::plan
