#include <ATen/native/zendnn/cpu/PlainConvolution.h>

#include <ATen/Parallel.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/native/zendnn/Primitives.h>
#include <ATen/native/zendnn/Thresholds.h>
#include <ATen/native/zendnn/Utils.h>
#include <ATen/native/zendnn/ZENDNNCommon.h>
#include <ATen/native/zendnn/cpu/Kernels.h>
#include <ATen/native/zendnn/kernels/depthwise.h>
#include <c10/util/accumulate.h>

#include <string_view>

namespace at::native::zendnn::cpu {
namespace {

using ::zendnn::convolution_forward;
using ::zendnn::memory;

struct Problem {
  DimVector input, weight, output, stride, padding, dilation;
  memory::data_type dtype;
  bool has_bias;
  int threads;

  bool operator==(const Problem&) const = default;
};

struct ProblemHash {
  size_t operator()(const Problem& p) const {
    return hash_with(
        c10::get_hash(static_cast<int>(p.dtype), p.has_bias, p.threads),
        p.input,
        p.weight,
        p.output,
        p.stride,
        p.padding,
        p.dilation);
  }
};

// Whether reordering into blocks takes longer than it saves.
bool is_faster_plain(const Problem& p) {
  const auto batch = p.input[0], points = p.output[2] * p.output[3];
  const auto weights = c10::multiply_integers(p.weight);
  if (p.weight[2] * p.weight[3] == 1) {
    return are_faster_one_by_one(batch, points, weights);
  }
  return batch == 1 ||
         batch * points * weights <= value_of(
                                         p.dtype == memory::data_type::bf16
                                             ? Threshold::plain_bf16_work
                                             : Threshold::plain_work);
}

// Only our implementation suits plain layouts; upstream's are slower on them
// than in blocks.
std::optional<BoundPrimitive> make_primitive(const Problem& p) {
  using tag = memory::format_tag;
  const auto dims = [](IntArrayRef sizes) { return sizes.vec(); };
  const memory::desc input(dims(p.input), p.dtype, tag::nchw);
  const memory::desc weight(dims(p.weight), p.dtype, tag::oihw);
  const memory::desc output(dims(p.output), p.dtype, tag::nchw);
  const auto bias = p.has_bias ? memory::desc({p.weight[0]}, p.dtype, tag::a)
                               : memory::desc();
  auto dilation = dims(p.dilation); // ZenDNN counts the gaps between points
  for (auto& step : dilation) {
    --step;
  }
  const convolution_forward::primitive_desc described(
      adeep::engine::cpu_engine(),
      ::zendnn::prop_kind::forward_inference,
      ::zendnn::algorithm::convolution_direct,
      input,
      weight,
      bias,
      output,
      dims(p.stride),
      dilation,
      dims(p.padding),
      dims(p.padding),
      ::zendnn::primitive_attr(),
      /*allow_empty=*/true);
  if (!described ||
      !std::string_view(described.impl_info_str()).starts_with("zen:")) {
    return std::nullopt;
  }
  return BoundPrimitive(
      convolution_forward(described),
      {{ZENDNN_ARG_SRC, input},
       {ZENDNN_ARG_WEIGHTS, weight},
       {ZENDNN_ARG_BIAS, bias},
       {ZENDNN_ARG_DST, output}});
}

// Of sizes or of a parameter: those of an image that a signal is, of height 1.
DimVector as_image(IntArrayRef sizes) {
  return sizes.size() == 3 ? DimVector{sizes[0], sizes[1], 1, sizes[2]}
                           : DimVector(sizes);
}
DimVector both(IntArrayRef param, bool is_signal, int64_t height) {
  return {is_signal ? height : param.front(), param.back()};
}

Problem problem_of(
    const Tensor& input,
    const Tensor& weight,
    bool has_bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation) {
  const bool is_signal = input.dim() == 3;
  Problem problem{
      .input = as_image(input.sizes()),
      .weight = as_image(weight.sizes()),
      .output = {},
      .stride = both(stride, is_signal, 1),
      .padding = both(padding, is_signal, 0),
      .dilation = both(dilation, is_signal, 1),
      .dtype = get_zendnn_dtype(input),
      .has_bias = has_bias,
      .threads = at::get_num_threads()};
  problem.output = DimVector(conv_output_size(
      problem.input,
      problem.weight,
      problem.padding,
      problem.stride,
      problem.dilation));
  return problem;
}

// Groups of one channel go plane by plane; others are not taken.
bool takes_groups(const Tensor& weight, int64_t groups) {
  return groups == 1 || weight.size(1) == 1;
}

kernels::Windows windows_of(const Problem& problem) {
  return {
      .height = problem.input[2],
      .width = problem.input[3],
      .out_height = problem.output[2],
      .out_width = problem.output[3],
      .kernel_height = problem.weight[2],
      .kernel_width = problem.weight[3],
      .stride_down = problem.stride[0],
      .stride_across = problem.stride[1],
      .dilation_down = problem.dilation[0],
      .dilation_across = problem.dilation[1],
      .pad_top = problem.padding[0],
      .pad_left = problem.padding[1]};
}

bool takes_planes(const Problem& problem) {
  return uses(Isa::avx2) && kernels::takes_windows(windows_of(problem));
}

// Null if there is none that is faster than one on blocks.
const BoundPrimitive* primitive_of(const Problem& problem) {
  if (!is_faster_plain(problem)) {
    return nullptr;
  }
  thread_local Recent<Problem, std::optional<BoundPrimitive>, ProblemHash>
      recent;
  const auto& primitive = recent.find(problem, make_primitive);
  return primitive ? &*primitive : nullptr;
}

std::optional<Tensor> convolve_in_panels(
    const Problem& problem,
    const Tensor& input,
    const Tensor& weight,
    const Tensor& bias) {
  const auto* const primitive = primitive_of(problem);
  if (primitive == nullptr) {
    return std::nullopt;
  }
  const auto x = input.contiguous(), w = weight.contiguous();
  auto output = at::detail::empty_cpu(problem.output, input.options());
  primitive->run(
      {{ZENDNN_ARG_SRC, x.const_data_ptr()},
       {ZENDNN_ARG_WEIGHTS, w.const_data_ptr()},
       {ZENDNN_ARG_BIAS, bias.defined() ? bias.const_data_ptr() : nullptr},
       {ZENDNN_ARG_DST, output.mutable_data_ptr()}});
  return output;
}

std::optional<Tensor> convolve_planes(
    const Problem& problem,
    const Tensor& input,
    const Tensor& weight,
    const Tensor& bias) {
  kernels::DepthwiseArgs args{
      .batch = problem.input[0],
      .channels = problem.input[1],
      .filters = problem.weight[0],
      .windows = windows_of(problem),
      .dtype = kernel_dtype(input)};
  if (!takes_planes(problem)) {
    return std::nullopt;
  }
  const auto x = input.contiguous(), w = weight.contiguous();
  auto output = at::detail::empty_cpu(problem.output, input.options());
  args.x = x.const_data_ptr();
  args.weight = w.const_data_ptr();
  args.bias = bias.defined() ? bias.const_data_ptr() : nullptr;
  args.out = output.mutable_data_ptr();
  prepare_kernel(::zendnn_convolution);
  return kernels::depthwise(args) ? std::optional(output) : std::nullopt;
}

} // namespace

bool are_faster_one_by_one(int64_t batch, int64_t points, int64_t weights) {
  return batch == 1 || points >= value_of(Threshold::pointwise_image) ||
         batch * points * weights <=
             value_of(Threshold::pointwise_batch_work) ||
         (points >= value_of(Threshold::pointwise_points) &&
          batch * weights <= value_of(Threshold::pointwise_weights));
}

bool convolves_plain(
    const Tensor& input,
    const Tensor& weight,
    bool has_bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    int64_t groups) {
  if (!takes_groups(weight, groups)) {
    return false;
  }
  const auto problem =
      problem_of(input, weight, has_bias, stride, padding, dilation);
  return groups > 1 ? takes_planes(problem) : primitive_of(problem) != nullptr;
}

std::optional<Tensor> convolve_plain(
    const Tensor& input,
    const Tensor& weight,
    const Tensor& bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    int64_t groups) {
  if (!takes_groups(weight, groups)) {
    return std::nullopt;
  }
  const auto problem =
      problem_of(input, weight, bias.defined(), stride, padding, dilation);
  return (groups > 1 ? convolve_planes : convolve_in_panels)(
      problem, input, weight, bias);
}

} // namespace at::native::zendnn::cpu
