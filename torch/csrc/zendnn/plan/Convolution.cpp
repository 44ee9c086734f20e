// Convolutions, transposed or not, with packed weights and post-ops.
#include <torch/csrc/zendnn/plan/Operators.h>
#include <torch/csrc/zendnn/plan/PostOps.h>
#include <torch/csrc/zendnn/plan/Primitive.h>

#include <ATen/Parallel.h>
#include <ATen/native/zendnn/kernels/winograd.h>
#include <adeep/abstract_types.hpp>

#include <cstdlib>
#include <limits>
#include <sstream>

namespace at::native::zendnn::plan {
namespace {

using ::zendnn::algorithm;
using ::zendnn::prop_kind;

// Implementations that are worth timing against each other, in ZenDNN's order.
constexpr size_t kCandidates = 2;

struct Window {
  int64_t spatial = 0;
  Dims kernel, stride, dilation, before, after, extra;
  int64_t groups = 1;
  bool transposed = false;
};

// One number stands for all spatial dimensions.
Dims spread(Dims numbers, int64_t spatial, int64_t otherwise) {
  if (numbers.empty()) {
    numbers.push_back(otherwise);
  }
  if (numbers.size() == 1) {
    numbers.resize(static_cast<size_t>(spatial), numbers[0]);
  }
  if (static_cast<int64_t>(numbers.size()) != spatial) {
    refuse("a convolution whose arguments disagree");
  }
  return numbers;
}

Window window_of(const Builder& builder, const Node& node) {
  const auto& weight = builder.sizes(tensor(node, 1));
  Window w;
  w.spatial = static_cast<int64_t>(weight.size()) - 2;
  if (w.spatial < 1 || w.spatial > 3) {
    refuse("a convolution over " + std::to_string(w.spatial) + " dimensions");
  }
  w.kernel.assign(weight.begin() + 2, weight.end());
  w.stride = spread(node.integers("stride"), w.spatial, 1);
  w.dilation = spread(node.integers("dilation"), w.spatial, 1);
  w.before = spread(node.integers("padding"), w.spatial, 0);
  w.after = node.attributes.contains("padding_end")
                ? spread(node.integers("padding_end"), w.spatial, 0)
                : w.before;
  w.extra = spread(node.integers("output_padding"), w.spatial, 0);
  w.groups = node.integer("groups", 1);
  w.transposed = node.integer("transposed", 0) != 0;
  return w;
}

// torch's weights as ZenDNN sees them: groups apart, outputs before inputs.
memory::desc weight_desc(const Tensor& weight, const Window& w) {
  const auto sizes = weight.sizes();
  const auto strides = weight.strides();
  const auto type = type_of(weight.scalar_type());
  Dims dims, steps;
  if (w.transposed) {
    const auto inputs = sizes[0] / w.groups;
    if (w.groups > 1) {
      dims.push_back(w.groups);
      steps.push_back(inputs * strides[0]);
    }
    dims.insert(dims.end(), {sizes[1], inputs});
    steps.insert(steps.end(), {strides[1], strides[0]});
  } else {
    const auto outputs = sizes[0] / w.groups;
    if (w.groups > 1) {
      dims.push_back(w.groups);
      steps.push_back(outputs * strides[0]);
    }
    dims.insert(dims.end(), {outputs, sizes[1]});
    steps.insert(steps.end(), {strides[0], strides[1]});
  }
  for (size_t i = 2; i < sizes.size(); ++i) {
    dims.push_back(sizes[i]);
    steps.push_back(strides[i]);
  }
  return {dims, type, steps};
}

std::vector<Primitive> implementations(
    const Window& w,
    const memory::desc& source,
    const memory::desc& weights,
    const memory::desc& bias,
    const memory::desc& result,
    const ::zendnn::primitive_attr& attributes) {
  const auto& engine = adeep::engine::cpu_engine();
  Dims dilation = w.dilation;
  for (auto& step : dilation) {
    step -= 1;
  }
  Dims after = w.after;
  for (int64_t i = 0; i < w.spatial; ++i) {
    after[i] -= w.transposed ? w.extra[i] : 0;
  }
  std::vector<Primitive> found;
  const auto collect = [&](auto desc, const auto& make) {
    do {
      found.emplace_back(desc, make(desc), "");
    } while (
        found.size() < kCandidates && desc.next_impl() &&
        std::string(desc.impl_info_str()).find("ref") == std::string::npos &&
        std::string(desc.impl_info_str()).find("gemm:") == std::string::npos);
  };
  if (w.transposed) {
    collect(
        ::zendnn::deconvolution_forward::primitive_desc(
            engine,
            prop_kind::forward_inference,
            algorithm::deconvolution_direct,
            source,
            weights,
            bias,
            result,
            w.stride,
            dilation,
            w.before,
            after,
            attributes),
        [](const auto& desc) { return ::zendnn::deconvolution_forward(desc); });
  } else {
    // Without room to the right of the last window ZenDNN wants it said so.
    for (int64_t i = 0; i < w.spatial; ++i) {
      const auto reach = w.dilation[i] * (w.kernel[i] - 1) + 1;
      const auto input = source.get_dims()[2 + i],
                 output = result.get_dims()[2 + i];
      after[i] = (output - 1) * w.stride[i] + reach - input - w.before[i];
    }
    collect(
        ::zendnn::convolution_forward::primitive_desc(
            engine,
            prop_kind::forward_inference,
            algorithm::convolution_direct,
            source,
            weights,
            bias,
            result,
            w.stride,
            dilation,
            w.before,
            after,
            attributes),
        [](const auto& desc) { return ::zendnn::convolution_forward(desc); });
  }
  return found;
}

// A convolution by Winograd's method, and the operand that it adds.
struct Winograd {
  kernels::WinogradArgs args;
  Operand addend;
};

bool winograd_wanted() {
  const char* text = std::getenv("ZENDNN_WINOGRAD");
  return text == nullptr || std::string(text) != "0";
}

kernels::ImageStrides image_strides(const Dims& strides) {
  return {strides[0], strides[2], strides[3]};
}

// What the kernel needs to know but places, when it does this convolution.
std::optional<Winograd>
winograd_of(const Builder& builder, const Node& node, const Window& w) {
  const Dims ones(2, 1);
  const auto& in = builder.sizes(tensor(node, 0));
  const auto& out = builder.sizes(node.output());
  if (builder.layout() != Layout::channels_last || w.transposed ||
      w.groups != 1 || w.kernel != Dims(2, 3) || w.stride != ones ||
      w.dilation != ones ||
      builder.dtype(tensor(node, 0)) != c10::ScalarType::Float ||
      (node.inputs[2] &&
       builder.dtype(tensor(node, 2)) != c10::ScalarType::Float) ||
      !winograd_wanted()) {
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
  args.scratch_bytes =
      kernels::winograd_scratch_bytes(args, at::get_num_threads());
  return kernels::winograd_takes(args) ? std::optional(made) : std::nullopt;
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

// On zeros, in memory of its own.
Candidate as_candidate(const Winograd& winograd, const Tensor& weight) {
  auto args = winograd.args;
  const auto zeros = [](int64_t bytes) {
    const auto size = (bytes + kAlignment) / kAlignment * kAlignment;
    std::shared_ptr<char> memory(
        static_cast<char*>(
            std::aligned_alloc(kAlignment, static_cast<size_t>(size))),
        std::free);
    std::fill_n(memory.get(), size, char{0});
    return memory;
  };
  const auto floats = [&](int64_t n) { return zeros(n * 4); };
  const auto x = floats(args.batch * args.height * args.width * args.channels);
  const auto out =
      floats(args.batch * args.out_height * args.out_width * args.filters);
  const auto packed =
      zeros(kernels::winograd_packed_bytes(winograd_weights(weight)));
  const auto scratch = zeros(args.scratch_bytes);
  args.x = reinterpret_cast<float*>(x.get());
  args.out = reinterpret_cast<float*>(out.get());
  args.addend = winograd.addend ? args.out : nullptr;
  args.weights = reinterpret_cast<float*>(packed.get());
  args.scratch = scratch.get();
  return {
      "winograd", [args, x, out, packed, scratch] { kernels::winograd(args); }};
}

void build_winograd(
    Builder& builder,
    const Node& node,
    const Winograd& winograd,
    const std::optional<Place>& aim,
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
  if (aim) {
    to = *aim;
    builder.set_place(output, to);
  } else {
    to = builder.make(output, layout(output));
  }
  args.out_strides = image_strides(builder.describe(output, to).get_strides());
  if (winograd.addend) {
    addend =
        builder.in_layout(winograd.addend.index, builder.describe(output, to));
  }
  const auto& weight = *builder.constant(tensor(node, 1));
  auto weights = winograd_weights(weight);
  const auto packed = builder.prepared(
      "winograd " + std::to_string(tensor(node, 1)),
      kernels::winograd_packed_bytes(weights),
      [&](void* memory) {
        weights.packed = static_cast<float*>(memory);
        kernels::winograd_pack(weights);
      });
  const auto scratch = builder.scratch(args.scratch_bytes);
  builder.add_kernel(
      node,
      "winograd",
      {from, to.ref, addend, bias, packed, scratch},
      [args, from, to = to.ref, addend, bias, packed, scratch](
          const Frame& frame) {
        auto call = args;
        call.x = frame.at<float>(from);
        call.out = frame.at<float>(to);
        call.addend = frame.at<float>(addend);
        call.bias = frame.at<float>(bias);
        call.weights = frame.at<float>(packed);
        call.scratch = frame.at(scratch);
        kernels::winograd(call);
      },
      flops);
}

} // namespace

void infer_convolution(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), weight = tensor(node, 1);
  const auto w = window_of(builder, node);
  const auto& in = builder.sizes(input);
  const auto& kernel = builder.sizes(weight);
  const auto* constant = builder.constant(weight);
  if (constant == nullptr) {
    refuse("a convolution whose weights are computed");
  }
  if (static_cast<int64_t>(in.size()) != w.spatial + 2) {
    refuse("a convolution of a tensor without a batch dimension");
  }
  type_of(builder.dtype(input));
  const auto channels = w.transposed ? kernel[0] : kernel[1] * w.groups;
  if (builder.dtype(input) != builder.dtype(weight) || in[1] != channels) {
    refuse("a convolution whose input and weights disagree");
  }
  Dims out{in[0], w.transposed ? kernel[1] * w.groups : kernel[0]};
  for (int64_t i = 0; i < w.spatial; ++i) {
    const auto reach = w.dilation[i] * (w.kernel[i] - 1) + 1;
    const auto size =
        w.transposed
            ? (in[2 + i] - 1) * w.stride[i] - w.before[i] - w.after[i] + reach +
                  w.extra[i]
            : (in[2 + i] + w.before[i] + w.after[i] - reach) / w.stride[i] + 1;
    if (size <= 0 ||
        (!w.transposed && in[2 + i] + w.before[i] + w.after[i] < reach)) {
      refuse("a convolution of an image smaller than its kernel");
    }
    out.push_back(size);
  }
  builder.set_type(node.output(), out, builder.dtype(input));
  check_post_ops(builder, node);
}

void build_convolution(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), weight = tensor(node, 1),
             output = node.output();
  const auto w = window_of(builder, node);
  const auto type = type_of(builder.dtype(input));
  const auto& out_sizes = builder.sizes(output);

  const auto plain_weights = weight_desc(*builder.constant(weight), w);
  memory::desc bias;
  Ref bias_ref;
  if (node.inputs[2]) {
    bias = memory::desc(
        {out_sizes[1]},
        type_of(builder.dtype(tensor(node, 2))),
        memory::format_tag::x);
    bias_ref = builder.dense(tensor(node, 2)).ref;
  }
  const auto layout = builder.layout();
  const auto images = [&](const Dims& sizes) -> memory::desc {
    if (layout == Layout::channels_last) {
      return {sizes, type, channels_last_strides(sizes)};
    }
    if (sizes[1] % 16 == 0) {
      return {sizes, type, blocked_tag(sizes.size())};
    }
    return {sizes, type, memory::format_tag::any};
  };
  // What is in a layout of ZenDNN's own already stays in it.
  const auto& from = builder.place(input);
  const auto source = from.blocked ? from.desc : images(builder.sizes(input));

  const auto target = builder.target(output);
  std::vector<Addition> additions{Addition::read, Addition::none};
  if (!target && can_accumulate(builder, node)) {
    additions.insert(additions.begin(), Addition::accumulate);
  }
  const double flops = 2.0 * static_cast<double>(count(out_sizes)) *
                       static_cast<double>(count(builder.sizes(weight))) /
                       static_cast<double>(
                           w.transposed ? w.groups * builder.sizes(weight)[1]
                                        : builder.sizes(weight)[0]);

  for (const auto addition : additions) {
    for (const bool aimed : {true, false}) {
      if (aimed && !target) {
        continue;
      }
      auto result =
          aimed ? builder.describe(output, *target) : images(out_sizes);
      auto attached = attach(builder, node, addition, [&](int64_t operand) {
        if (builder.sizes(operand) != out_sizes) {
          return see_broadcast(builder, operand, out_sizes);
        }
        // The result has the layout that its operand has.
        if (result.get_format_kind() == memory::format_kind::any &&
            builder.place(operand).blocked) {
          result = builder.place(operand).desc;
        }
        if (result.get_format_kind() == memory::format_kind::any) {
          return see_broadcast(builder, operand, out_sizes);
        }
        return std::optional(
            std::pair{result, builder.in_layout(operand, result)});
      });
      if (attached.accumulator) {
        result = builder.describe(output, *attached.accumulator);
      }
      std::vector<Primitive> found;
      try {
        found = implementations(
            w,
            source,
            any_layout(plain_weights),
            bias,
            result,
            attached.attributes);
      } catch (const ::zendnn::error&) {
        continue; // not with these post-ops, or not into this place
      }
      size_t chosen = 0;
      std::erase_if(found, [&](const Primitive& other) {
        return other.source != found[0].source ||
               other.result != found[0].result;
      });
      auto winograd = winograd_of(builder, node, w);
      // It writes into channels-last places, whatever lies between the pixels.
      const auto aim = attached.accumulator ? attached.accumulator
                       : aimed              ? target
                                            : std::nullopt;
      if (aim && builder.describe(output, *aim).get_strides()[1] != 1) {
        winograd.reset();
      }
      if (found.size() > 1 || winograd) {
        std::ostringstream key;
        key << "convolution " << builder.sizes(input) << builder.sizes(weight)
            << w.stride << w.before << w.dilation << ' ' << w.groups
            << w.transposed << ' ' << static_cast<int>(type)
            << static_cast<int>(layout) << static_cast<int>(addition)
            << post_op_key(builder, node) << " threads "
            << at::get_num_threads();
        std::vector<Candidate> candidates;
        for (const auto& made : found) {
          candidates.push_back(as_candidate(made, bias, attached.arguments));
        }
        if (winograd) {
          candidates.push_back(
              as_candidate(*winograd, *builder.constant(weight)));
        }
        chosen = choose(key.str(), candidates, builder.tuning_seconds());
      }
      if (chosen == found.size()) {
        return build_winograd(builder, node, *winograd, aim, bias_ref, flops);
      }
      const auto& made = found[chosen];
      Place place;
      if (attached.accumulator) {
        place = *attached.accumulator;
        builder.set_place(output, place);
      } else if (aimed) {
        place = *target;
        builder.set_place(output, place);
      } else {
        place = builder.make(output, made.result);
      }
      auto arguments = attached.arguments;
      arguments.insert(
          arguments.end(),
          {{ZENDNN_ARG_SRC, made.source, builder.in_layout(input, made.source)},
           {ZENDNN_ARG_WEIGHTS,
            made.weights,
            builder.packed(weight, plain_weights, made.weights)},
           {ZENDNN_ARG_DST, made.result, place.ref}});
      if (!bias.is_zero()) {
        arguments.push_back({ZENDNN_ARG_BIAS, bias, bias_ref});
      }
      const auto workspace = static_cast<int64_t>(made.workspace.get_size());
      if (workspace > 0) {
        arguments.push_back(
            {ZENDNN_ARG_SCRATCHPAD,
             made.workspace,
             builder.scratch(workspace)});
      }
      builder.add_primitive(node, made.run, made.name, arguments, flops);
      apply_rest(builder, node, attached.taken);
      return;
    }
  }
  refuse("a convolution that ZenDNN does not do");
}

} // namespace at::native::zendnn::plan
