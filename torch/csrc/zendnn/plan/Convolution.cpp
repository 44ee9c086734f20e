// Convolutions, transposed or not, with packed weights and post-ops.
#include <torch/csrc/zendnn/plan/Operators.h>
#include <torch/csrc/zendnn/plan/PostOps.h>
#include <torch/csrc/zendnn/plan/Primitive.h>
#include <torch/csrc/zendnn/plan/Trial.h>
#include <torch/csrc/zendnn/plan/Winograd.h>

#include <ATen/Parallel.h>
#include <adeep/abstract_types.hpp>

#include <limits>
#include <sstream>

namespace at::native::zendnn::plan {
namespace {

using ::zendnn::algorithm;
using ::zendnn::prop_kind;

// Implementations that are worth timing against each other, in ZenDNN's order.
constexpr size_t kCandidates = 3;

Window window_of(const Values& values, const Node& node) {
  const auto& weight = values.sizes(tensor(node, 1));
  Window w;
  w.spatial = static_cast<int64_t>(weight.size()) - 2;
  if (w.spatial < 1 || w.spatial > 3) {
    refuse("a convolution over " + std::to_string(w.spatial) + " dimensions");
  }
  w.kernel.assign(weight.begin() + 2, weight.end());
  w.stride = spread(node.get(attr::convolution::stride), w.spatial, 1, 1);
  w.dilation = spread(node.get(attr::convolution::dilation), w.spatial, 1, 1);
  w.before = spread(node.get(attr::convolution::padding), w.spatial, 0);
  w.after = node.attributes.contains("padding_end")
                ? spread(node.get(attr::convolution::padding_end), w.spatial, 0)
                : w.before;
  w.extra = spread(node.get(attr::convolution::output_padding), w.spatial, 0);
  w.groups = node.get(attr::convolution::groups);
  w.transposed = node.get(attr::convolution::transposed);
  return w;
}

// torch's weights as ZenDNN sees them: groups apart, outputs before inputs.
memory::desc weight_desc(const Tensor& weight, const Window& w) {
  Dims dims = weight.sizes().vec(), steps = weight.strides().vec();
  dims[0] /= w.groups;
  const auto group = dims[0] * steps[0];
  if (w.transposed) {
    std::swap(dims[0], dims[1]);
    std::swap(steps[0], steps[1]);
  }
  if (w.groups > 1) {
    dims.insert(dims.begin(), w.groups);
    steps.insert(steps.begin(), group);
  }
  return {dims, type_of(weight.scalar_type()), steps};
}

bool multiplies_matrices(const std::string& implementation) {
  return implementation.find("gemm:") != std::string::npos;
}

// Those that are not worth timing where there are others.
bool is_slow(const std::string& implementation) {
  return is_reference(implementation) || multiplies_matrices(implementation);
}

// Whether it ignores the strides of a given place. ZenDNN's transposed
// convolution by a convolution's gradient writes beyond the place.
bool writes_side_by_side(const std::string& implementation) {
  return multiplies_matrices(implementation) ||
         implementation.starts_with("conv:any+");
}

// What ZenDNN is told of a convolution.
struct Problem {
  memory::desc source, weights, bias, result;
  memory::desc plain; // the weights as they lie
};

// ZenDNN's description of it, for the first of its implementations. Throws
// zendnn::error when there is none.
template <typename Convolution>
typename Convolution::primitive_desc describe(
    const Window& w,
    const Problem& p,
    const ::zendnn::primitive_attr& attributes) {
  Dims dilation = w.dilation, after = w.after;
  for (size_t i = 0; i < w.kernel.size(); ++i) {
    dilation[i] -= 1;
    // ZenDNN wants the padding that the last window reaches, or leaves.
    const auto reach = w.dilation[i] * (w.kernel[i] - 1) + 1;
    const auto input = p.source.get_dims()[2 + i],
               output = p.result.get_dims()[2 + i];
    after[i] = w.transposed
                   ? after[i] - w.extra[i]
                   : (output - 1) * w.stride[i] + reach - input - w.before[i];
  }
  return {
      adeep::engine::cpu_engine(),
      prop_kind::forward_inference,
      w.transposed ? algorithm::deconvolution_direct
                   : algorithm::convolution_direct,
      p.source,
      p.weights,
      p.bias,
      p.result,
      w.stride,
      dilation,
      w.before,
      after,
      attributes};
}

// The first implementations that ZenDNN has, all for the same layouts; only the
// first of them may be a slow one; none where all want too much memory, or
// cannot write into a given place.
template <typename Convolution>
std::vector<Primitive> implementations(
    const Window& w,
    const Problem& p,
    const ::zendnn::primitive_attr& attributes,
    bool given_place) {
  auto desc = describe<Convolution>(w, p, attributes);
  std::vector<Primitive> found;
  do {
    if (!found.empty() && is_slow(desc.impl_info_str())) {
      break;
    }
    auto made = Primitive::of<Convolution>(desc, "", p.plain);
    if (is_affordable(made) &&
        !(given_place && writes_side_by_side(made.name)) &&
        (found.empty() ||
         (made.source == found[0].source && made.result == found[0].result))) {
      found.push_back(std::move(made));
    }
  } while (found.size() < kCandidates && desc.next_impl());
  return found;
}

// ZenDNN's plain loops.
template <typename Convolution>
Primitive reference(
    const Window& w,
    const Problem& p,
    const ::zendnn::primitive_attr& attributes) {
  auto desc = describe<Convolution>(w, p, attributes);
  do {
    if (is_reference(desc.impl_info_str())) {
      return Primitive::of<Convolution>(desc, "reference ", p.plain);
    }
  } while (desc.next_impl());
  refuse("a convolution that has no reference");
}

// How images of these sizes lie inside the region.
memory::desc image_layout(
    const Builder& builder,
    const Dims& sizes,
    memory::data_type type) {
  if (builder.layout() == Layout::channels_last) {
    return {sizes, type, channels_last_strides(sizes)};
  }
  return {
      sizes,
      type,
      sizes[1] % channel_block() == 0 ? blocked_tag(sizes.size())
                                      : memory::format_tag::any};
}

Problem problem_of(const Builder& builder, const Node& node, const Window& w) {
  const auto input = tensor(node, 0);
  const auto type = type_of(builder.dtype(input));
  const auto& from = builder.place(input);
  Problem p;
  // What is in a layout of ZenDNN's own already stays in it.
  p.source = from.blocked ? from.desc
                          : image_layout(builder, builder.sizes(input), type);
  p.plain = weight_desc(*builder.constant(tensor(node, 1)), w);
  p.weights = any_layout(p.plain);
  if (has(node, 2)) {
    const auto bias = tensor(node, 2);
    p.bias = memory::desc(
        builder.sizes(bias),
        type_of(builder.dtype(bias)),
        memory::format_tag::x);
  }
  return p;
}

// A way to attach post-ops, and where the result goes when that is given.
struct Way {
  Addition addition;
  std::optional<Place> aim;
};

// Best first.
std::vector<Way> ways_of(Builder& builder, const Node& node) {
  const auto target = builder.target(node.output());
  std::vector<Way> ways;
  if (can_accumulate(builder, node)) {
    ways.push_back({Addition::accumulate, std::nullopt});
  }
  for (const auto addition : {Addition::read, Addition::none}) {
    if (target) {
      ways.push_back({addition, target});
    }
    ways.push_back({addition, std::nullopt});
  }
  return ways;
}

// The node's post-ops for a result whose layout is in `result`, where it can be
// ZenDNN's choice; it becomes that of an operand of the same size.
Attached attach_to_images(
    Builder& builder,
    const Node& node,
    Addition addition,
    memory::desc& result) {
  const auto& sizes = builder.sizes(node.output());
  const auto see = [&](int64_t operand) -> std::optional<Seen> {
    const auto& place = builder.place(operand);
    const bool open = result.get_format_kind() == memory::format_kind::any;
    if (builder.sizes(operand) != sizes ||
        (!place.blocked && (open || overlaps(sizes, place.strides)))) {
      return see_broadcast(builder, operand, sizes);
    }
    result = open ? place.desc : result;
    return Seen{result, [&builder, operand, layout = result] {
                  return builder.in_layout(operand, layout);
                }};
  };
  auto attached = attach(builder, node, addition, see);
  if (attached.accumulator) {
    result = builder.describe(node.output(), *attached.accumulator);
  }
  return attached;
}

// The index of the fastest primitive; none when Winograd's method is faster.
std::optional<size_t> fastest(
    Builder& builder,
    const Node& node,
    const Window& w,
    Problem p,
    const Attached& attached,
    const std::vector<Primitive>& found,
    const std::optional<Winograd>& winograd) {
  if (winograd && winograd_use() == Use::always) {
    return std::nullopt;
  }
  if (found.size() + (winograd ? 1 : 0) < 2 && !verifies()) {
    return 0;
  }
  std::ostringstream key;
  key << "convolution " << text_of(found[0].source) << ' '
      << builder.sizes(tensor(node, 1)) << ' ' << text_of(p.bias) << ' '
      << text_of(found[0].result) << ' ' << w.stride << ' ' << w.before << ' '
      << w.after << ' ' << w.dilation << ' ' << w.groups << w.transposed
      << attached.accumulator.has_value() << post_op_key(node, attached)
      << " threads " << at::get_num_threads();
  const auto& weight = *builder.constant(tensor(node, 1));
  const auto trial = std::make_shared<Trial>(
      p.plain,
      builder.plain_weights(tensor(node, 1)),
      weight.numel() / std::max<int64_t>(weight.size(w.transposed ? 1 : 0), 1),
      magnification(node));
  std::vector<Candidate> candidates;
  for (const auto& made : found) {
    candidates.push_back(as_candidate(made, p.bias, attached, trial));
  }
  if (winograd) {
    candidates.push_back(as_candidate(
        *winograd,
        weight,
        p.bias,
        attached,
        attached.taken == node.post.size(),
        trial));
  }
  p.source = found[0].source;
  p.result = found[0].result;
  const auto chosen = builder.choose(node, key.str(), candidates, [&] {
    using ::zendnn::convolution_forward, ::zendnn::deconvolution_forward;
    const auto made =
        w.transposed
            ? reference<deconvolution_forward>(w, p, attached.attributes)
            : reference<convolution_forward>(w, p, attached.attributes);
    return judgement_of(as_candidate(made, p.bias, attached, trial), *trial);
  });
  return chosen < found.size() ? std::optional(chosen) : std::nullopt;
}

void add_convolution(
    Builder& builder,
    const Node& node,
    const Primitive& made,
    const Attached& attached,
    const std::optional<Place>& aim,
    std::vector<Step::Argument> bias,
    double flops) {
  const auto output = node.output(), weight = tensor(node, 1);
  auto arguments = attached.read();
  const auto source = builder.in_layout(tensor(node, 0), made.source);
  if (aim) {
    builder.set_place(output, *aim);
  } else {
    builder.make(output, made.result);
  }
  arguments.insert(
      arguments.end(),
      {{ZENDNN_ARG_SRC, made.source, source},
       {ZENDNN_ARG_WEIGHTS,
        made.weights,
        builder.packed(weight, made.plain, made.weights)},
       {ZENDNN_ARG_DST, made.result, builder.place(output).ref}});
  arguments.insert(arguments.end(), bias.begin(), bias.end());
  builder.add_primitive(
      node, made.make(), made.name, std::move(arguments), flops);
  apply_rest(builder, node, attached.taken);
  copy_to_slice(builder, output);
}

} // namespace

void infer_convolution(Values& values, const Node& node) {
  const auto input = tensor(node, 0), weight = tensor(node, 1);
  const auto w = window_of(values, node);
  const auto& in = values.sizes(input);
  const auto& kernel = values.sizes(weight);
  const auto* constant = values.constant(weight);
  if (constant == nullptr) {
    refuse("a convolution whose weights are computed");
  }
  if (static_cast<int64_t>(in.size()) != w.spatial + 2) {
    refuse("a convolution of a tensor without a batch dimension");
  }
  type_of(values.dtype(input));
  if (w.groups < 1 || kernel[0] % w.groups != 0) {
    refuse("a convolution in groups that do not divide its channels");
  }
  const auto channels = w.transposed ? kernel[0] : kernel[1] * w.groups;
  const auto filters = w.transposed ? kernel[1] * w.groups : kernel[0];
  if (values.dtype(input) != values.dtype(weight) || in[1] != channels) {
    refuse("a convolution whose input and weights disagree");
  }
  if (has(node, 2) && values.sizes(tensor(node, 2)) != Dims{filters}) {
    refuse("a convolution whose bias is not one number for each channel");
  }
  Dims out{in[0], filters};
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
  values.set_type(node.output(), out, values.dtype(input));
}

void build_convolution(Builder& builder, const Node& node) {
  const auto weight = tensor(node, 1), output = node.output();
  const auto w = window_of(builder, node);
  auto p = problem_of(builder, node, w);
  std::vector<Step::Argument> bias;
  if (has(node, 2)) {
    bias.push_back(
        {ZENDNN_ARG_BIAS, p.bias, builder.dense(tensor(node, 2)).ref});
  }
  const auto& sizes = builder.sizes(weight);
  const double flops =
      2.0 * static_cast<double>(count(builder.sizes(output))) *
      static_cast<double>(count(sizes)) /
      static_cast<double>(w.transposed ? w.groups * sizes[1] : sizes[0]);
  const auto winograd = winograd_of(builder, node, w);
  const auto ways = ways_of(builder, node);
  // Slow implementations only where no way gives another, and never into a
  // given place: a copy is faster.
  for (const bool slow : {false, true}) {
    for (auto [addition, aim] : ways) {
      p.result =
          aim ? builder.describe(output, *aim)
              : image_layout(
                    builder, builder.sizes(output), p.source.get_data_type());
      const auto attached = attach_to_images(builder, node, addition, p.result);
      const auto place = attached.accumulator ? attached.accumulator : aim;
      std::vector<Primitive> found;
      try {
        using ::zendnn::convolution_forward, ::zendnn::deconvolution_forward;
        found = w.transposed
                    ? implementations<deconvolution_forward>(
                          w, p, attached.attributes, place.has_value())
                    : implementations<convolution_forward>(
                          w, p, attached.attributes, place.has_value());
      } catch (const ::zendnn::error&) {
        continue; // not with these post-ops, or not into this place
      }
      if (found.empty() || (is_slow(found[0].name) && (place || !slow))) {
        continue;
      }
      const auto chosen =
          fastest(builder, node, w, p, attached, found, winograd);
      if (!chosen) {
        return build_winograd(
            builder,
            node,
            *winograd,
            attached.accumulator,
            bias.empty() ? Ref{} : bias[0].ref,
            flops);
      }
      return add_convolution(
          builder, node, found[*chosen], attached, place, bias, flops);
    }
  }
  refuse("a convolution that ZenDNN does not do");
}

} // namespace at::native::zendnn::plan
