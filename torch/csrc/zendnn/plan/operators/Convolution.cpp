// Convolutions, transposed or not, with packed weights and post-ops.
#include <torch/csrc/zendnn/plan/describe/Operators.h>
#include <torch/csrc/zendnn/plan/operators/Convolution.h>

#include <algorithm>
#include <sstream>

namespace at::native::zendnn::plan {
namespace {

using ::zendnn::algorithm;
using ::zendnn::prop_kind;

// How many implementations are timed, in ZenDNN's order.
constexpr size_t kCandidates = 3;

Window window_of(const Values& values, const Node& node) {
  const auto& weight = values.sizes(tensor(node, 1));
  if (weight.size() < 3 || weight.size() > 5) {
    refuse(
        "a convolution with weights of " + std::to_string(weight.size()) +
        " dimensions");
  }
  Window w;
  w.kernel.assign(weight.begin() + 2, weight.end());
  const auto spatial = w.kernel.size();
  w.stride = spread(node.as<attr::convolution>().stride, spatial, 1, 1);
  w.dilation = spread(node.as<attr::convolution>().dilation, spatial, 1, 1);
  w.before = spread(node.as<attr::convolution>().padding, spatial, 0);
  w.after = !node.as<attr::convolution>().padding_end.empty()
                ? spread(node.as<attr::convolution>().padding_end, spatial, 0)
                : w.before;
  w.extra = spread(node.as<attr::convolution>().output_padding, spatial, 0);
  w.groups = node.as<attr::convolution>().groups;
  w.transposed = node.as<attr::convolution>().transposed;
  return w;
}

// torch's weights as ZenDNN sees them: groups apart, outputs before inputs.
memory::desc weight_desc(const TensorSpec& weight, const Window& w) {
  auto dims = weight.sizes, steps = weight.strides;
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
  return {dims, type_of(weight.dtype), steps};
}

// How images lie inside the region.
memory::desc image_layout(const Builder& builder, int64_t value) {
  const auto& sizes = builder.values().sizes(value);
  const auto type = type_of(builder.values().dtype(value));
  if (builder.layout() == Layout::channels_last) {
    return {sizes, type, channels_last_strides(sizes)};
  }
  return {
      sizes,
      type,
      sizes[1] % channel_block() == 0 ? blocked_tag(sizes.size())
                                      : memory::format_tag::any};
}

// ZenDNN's others compute whole blocks of channels for each group.
bool is_for_depthwise(const Implementation& implementation) {
  return implementation.name.find("dw") != std::string::npos;
}

class Convolution : public Product {
 public:
  Convolution(Builder& builder, const Node& node)
      : Product(builder, node, "convolution"),
        w_(window_of(builder.values(), node)) {
    most_ = kCandidates;
    const auto input = tensor(node, 0), weight = tensor(node, 1);
    const auto& from = builder.place(input);
    // A layout of ZenDNN's own stays as it is.
    source_ = from.blocked ? *from.blocked : image_layout(builder, input);
    weights_ = weight_desc(builder.values().spec(weight), w_);
    // ZenDNN computes most of these as a convolution's gradient, which adds the
    // bias one element at a time. In bfloat16, a step apart would round twice.
    bias_apart_ =
        w_.transposed && w_.groups > 1 && has(node, 2) &&
        builder.values().dtype(node.output()) == c10::ScalarType::Float &&
        builder.values().dtype(tensor(node, 2)) == c10::ScalarType::Float;
    if (!bias_apart_) {
      set_bias();
    }
    const auto& sizes = builder.values().sizes(weight);
    depth_ = count(sizes) / (w_.transposed ? w_.groups * sizes[1] : sizes[0]);
    std::ostringstream text;
    text << ' ' << w_.stride << ' ' << w_.before << ' ' << w_.after << ' '
         << w_.dilation << ' ' << w_.transposed;
    window_ = text.str();
  }

 private:
  std::optional<memory::desc> describe_result(
      const std::optional<Place>& place) const override {
    const auto output = node_.output();
    return place ? builder_.describe(output, *place)
                 : image_layout(builder_, output);
  }

  // A result whose layout is ZenDNN's choice takes that of an operand of its
  // size.
  std::optional<Seen> see(int64_t operand) override {
    const auto& sizes = builder_.values().sizes(node_.output());
    const auto& place = builder_.place(operand);
    const bool open = result_.get_format_kind() == memory::format_kind::any;
    if (builder_.values().sizes(operand) != sizes ||
        (!place.blocked && (open || overlaps(sizes, place.strides)))) {
      return see_broadcast(builder_, operand, sizes);
    }
    result_ = open ? *place.blocked : result_;
    return Seen{result_, [this, operand, layout = result_] {
                  return builder_.in_layout(operand, layout);
                }};
  }

  void visit(const ::zendnn::primitive_attr& attributes, const Visit& visit)
      const override {
    w_.transposed ? visit_as<::zendnn::deconvolution_forward>(attributes, visit)
                  : visit_as<::zendnn::convolution_forward>(attributes, visit);
  }

  template <typename Run>
  void visit_as(const ::zendnn::primitive_attr& attributes, const Visit& visit)
      const {
    Dims dilation = w_.dilation, after = w_.after;
    for (size_t i = 0; i < w_.kernel.size(); ++i) {
      dilation[i] -= 1;
      // ZenDNN wants the padding that the last window reaches, or leaves.
      const auto reach = w_.reach(i);
      const auto input = source_.get_dims()[2 + i],
                 output = result_.get_dims()[2 + i];
      after[i] = w_.transposed ? after[i] - w_.extra[i]
                               : (output - 1) * w_.stride[i] + reach - input -
                                     w_.before[i];
    }
    visit_primitives<Run>(
        "",
        weights_,
        [&](Implementation implementation) {
          // Its transposed convolution by a convolution's gradient ignores the
          // strides of a given place and writes beyond it.
          if (place_ && implementation.name.starts_with("conv:any+")) {
            return true;
          }
          // A convolution's gradient applies post-ops one element at a time.
          implementation.is_slow =
              implementation.is_slow ||
              implementation.name.find("gemm:") != std::string::npos ||
              (implementation.name.starts_with("conv:any+") &&
               attributes.get_post_ops().len() > 0);
          return visit(std::move(implementation));
        },
        prop_kind::forward_inference,
        w_.transposed ? algorithm::deconvolution_direct
                      : algorithm::convolution_direct,
        source_,
        any_layout(weights_),
        bias_,
        result_,
        w_.stride,
        dilation,
        w_.before,
        after,
        attributes);
  }

  std::vector<Implementation> find(const Attached& attached, bool slow)
      const override {
    auto found = Product::find(attached, slow);
    if (std::none_of(found.begin(), found.end(), is_for_depthwise) &&
        is_depthwise(builder_, node_, w_)) {
      if (attached.taken > 0 || place_) {
        return {}; // the kernel has no post-ops, and a place of its own
      }
      return {depthwise(builder_, node_, w_)};
    }
    add_winograd(builder_, node_, w_, attached, found);
    return found;
  }

  Window w_;
};

} // namespace

void infer_convolution(Values& values, const Node& node) {
  const auto input = tensor(node, 0), weight = tensor(node, 1);
  const auto w = window_of(values, node);
  const auto& in = values.sizes(input);
  const auto& kernel = values.sizes(weight);
  if (!values.is_constant(weight)) {
    refuse("a convolution whose weights are computed");
  }
  if (in.size() != kernel.size()) {
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
  if (has(node, 2) && values.dtype(tensor(node, 2)) != values.dtype(weight)) {
    refuse("a convolution whose bias has another dtype");
  }
  Dims out{in[0], filters};
  for (size_t i = 0; i < w.kernel.size(); ++i) {
    const auto reach = w.reach(i);
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
  Convolution(builder, node).build();
}

} // namespace at::native::zendnn::plan
