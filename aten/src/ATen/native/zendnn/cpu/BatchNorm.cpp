// Batch norm on our own kernels, for contiguous and channels-last tensors.
#include <ATen/native/zendnn/cpu/Overrides.h>

#include <ATen/CPUFunctions.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/zendnn/UnseenWrites.h>
#include <ATen/native/zendnn/cpu/Heuristics.h>
#include <ATen/native/zendnn/cpu/Parameters.h>
#include <ATen/native/zendnn/kernels/batch_norm.h>

#include <ATen/ops/add.h>
#include <ATen/ops/rsqrt.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>

namespace at::native::zendnn::cpu {
namespace {

// A tensor as (batch, channels, pixels).
struct Images {
  Images(const Tensor& x, MemoryFormat format)
      : batch(x.size(0)),
        channels(x.size(1)),
        pixels(x.numel() / (batch * channels)),
        // The channels of a pixel are contiguous, except in planes.
        layout(
            format == MemoryFormat::Contiguous && pixels > 1
                ? kernels::ChannelLayout::planes
                : kernels::ChannelLayout::last) {}

  Tensor scratch() const {
    const auto chunks =
        layout == kernels::ChannelLayout::last
            ? kernels::batch_norm_chunks(batch * pixels, channels)
            : 0;
    return at::detail::empty_cpu({2 * chunks * channels}, kDouble);
  }

  int64_t batch, channels, pixels;
  kernels::ChannelLayout layout;
};

MemoryFormat format_of(const Tensor& x) {
  return x.is_contiguous() ? MemoryFormat::Contiguous
                           : x.suggest_memory_format();
}

Reason why_no_images(const Tensor& x) {
  const auto reason = why_no_operand(x);
  return reason != nullptr ? reason
         : x.dim() < 2     ? why::kSizes
         : x.numel() == 0  ? why::kEmpty
         : !x.is_contiguous(format_of(x))
             ? why::kOrder
             : why_leave_batch_norm(x.scalar_type());
}

Tensor empty_images(const Tensor& like, MemoryFormat format) {
  return at::detail::empty_cpu(
      like.sizes(), like.options().memory_format(format));
}

bool takes_parameters(
    std::initializer_list<std::reference_wrapper<const Parameter>> parameters,
    const Tensor& x) {
  const auto channels = x.size(1);
  return std::all_of(
      parameters.begin(), parameters.end(), [&](const Parameter& parameter) {
        return takes_parameter(parameter, channels, x);
      });
}

const float* floats_or_null(const Parameter& parameter) {
  return has(parameter) ? parameter->const_data_ptr<float>() : nullptr;
}
float* mutable_floats_or_null(const Parameter& parameter) {
  return has(parameter) ? parameter->mutable_data_ptr<float>() : nullptr;
}

Tensor empty_parameter(int64_t size, ScalarType type) {
  return at::detail::empty_cpu({size}, type);
}

Tensor by_known_statistics(
    const Tensor& input,
    const Parameter& weight,
    const Parameter& bias,
    const Tensor& mean,
    const Tensor& variance,
    double eps) {
  const auto format = format_of(input);
  const Images of(input, format);
  const auto step =
      of.layout == kernels::ChannelLayout::last ? of.channels : of.pixels;
  const auto image = of.channels * of.pixels;
  Tensor out = empty_images(input, format);
  prepare_kernel(zendnn_batch_normalization);
  kernels::batch_norm(
      {.x = input.const_data_ptr(),
       .out = out.mutable_data_ptr(),
       .mean = mean.const_data_ptr(),
       .variance = variance.const_data_ptr(),
       .weight = data_or_null(weight),
       .bias = data_or_null(bias),
       .batch = of.batch,
       .channels = of.channels,
       .pixels = of.pixels,
       .x_batch_stride = image,
       .out_batch_stride = image,
       .x_stride = step,
       .out_stride = step,
       .layout = of.layout,
       .eps = static_cast<float>(eps),
       .dtype = kernel_dtype(input),
       .weight_dtype = kernel_dtype(mean)});
  return out;
}

Reason why_not_batch_norm(
    const Tensor& input,
    const Parameter& weight,
    const Parameter& bias,
    const Parameter& running_mean,
    const Parameter& running_var,
    bool training,
    double /*momentum*/,
    double /*eps*/) {
  if (const auto reason = why_no_images(input)) {
    return reason;
  }
  // For one statistic without the other, torch's kernel raises the error.
  if (has(running_mean) != has(running_var) ||
      !takes_parameters({weight, bias, running_mean, running_var}, input)) {
    return why::kParameter;
  }
  const auto type =
      parameter_type({weight, bias, running_mean, running_var}, input);
  if (!training) {
    return type == ScalarType::Undefined || !has(running_mean) ? why::kParameter
                                                               : nullptr;
  }
  return type != kFloat                   ? why::kParameter
         : input.numel() == input.size(1) ? "one value in each channel"
                                          : nullptr;
}

std::tuple<Tensor, Tensor, Tensor> batch_norm(
    const Tensor& input,
    const Parameter& weight,
    const Parameter& bias,
    const Parameter& running_mean,
    const Parameter& running_var,
    bool training,
    double momentum,
    double eps) {
  const auto type =
      parameter_type({weight, bias, running_mean, running_var}, input);
  if (!training) {
    return {
        by_known_statistics(
            input, weight, bias, *running_mean, *running_var, eps),
        empty_parameter(0, type),
        empty_parameter(0, type)};
  }
  const auto format = format_of(input);
  const Images of(input, format);
  Tensor out = empty_images(input, format);
  Tensor mean = empty_parameter(of.channels, type);
  Tensor rstd = empty_parameter(of.channels, type);
  const Tensor scratch = of.scratch();
  // Written tensors come first: their access may move data that others share.
  auto* const new_mean = mutable_floats_or_null(running_mean);
  auto* const new_variance = mutable_floats_or_null(running_var);
  prepare_kernel(zendnn_batch_normalization);
  kernels::batch_norm_training(
      {.x = input.const_data_ptr(),
       .out = out.mutable_data_ptr(),
       .weight = floats_or_null(weight),
       .bias = floats_or_null(bias),
       .running_mean = new_mean,
       .running_variance = new_variance,
       .mean = mean.mutable_data_ptr<float>(),
       .rstd = rstd.mutable_data_ptr<float>(),
       .scratch = scratch.mutable_data_ptr<double>(),
       .batch = of.batch,
       .channels = of.channels,
       .pixels = of.pixels,
       .eps = eps,
       .momentum = momentum,
       .layout = of.layout,
       .dtype = kernel_dtype(input)});
  return {std::move(out), std::move(mean), std::move(rstd)};
}

// Runs a kernel that writes the running statistics to train, which torch's
// schema does not say.
template <auto kRun>
std::tuple<Tensor, Tensor, Tensor> run_and_note(
    const Tensor& input,
    const Parameter& weight,
    const Parameter& bias,
    const Parameter& running_mean,
    const Parameter& running_var,
    bool training,
    double momentum,
    double eps) {
  const auto after = c10::make_scope_exit([&] {
    for (const auto* written : {&running_mean, &running_var}) {
      if (training && has(*written)) {
        unseen_writes::note(**written);
      }
    }
  });
  return kRun(
      input, weight, bias, running_mean, running_var, training, momentum, eps);
}

Reason why_not_batch_norm_backward(
    const Tensor& grad_out,
    const Tensor& input,
    const Parameter& weight,
    const Parameter& running_mean,
    const Parameter& running_var,
    const Parameter& save_mean,
    const Parameter& save_invstd,
    bool train,
    double /*eps*/,
    std::array<bool, 3> /*output_mask*/) {
  const auto& mean = train ? save_mean : running_mean;
  const auto& spread = train ? save_invstd : running_var;
  if (const auto reason = why_no_images(input)) {
    return reason;
  }
  if (const auto reason = why_no_images(grad_out)) {
    return reason;
  }
  return grad_out.scalar_type() != input.scalar_type() ? why::kTypes
         : grad_out.sizes() != input.sizes()           ? why::kSizes
         : format_of(grad_out) != format_of(input)     ? why::kOrder
         : !has(mean) || !has(spread) ||
                 !takes_parameters({weight, mean, spread}, input) ||
                 parameter_type({weight, mean, spread}, input) != kFloat
             ? why::kParameter
             : nullptr;
}

std::tuple<Tensor, Tensor, Tensor> batch_norm_backward(
    const Tensor& grad_out,
    const Tensor& input,
    const Parameter& weight,
    const Parameter& running_mean,
    const Parameter& running_var,
    const Parameter& save_mean,
    const Parameter& save_invstd,
    bool train,
    double eps,
    std::array<bool, 3> output_mask) {
  const auto& mean = train ? save_mean : running_mean;
  const auto& spread = train ? save_invstd : running_var;
  const auto format = format_of(input);
  const Images of(input, format);
  const auto wanted = [&](size_t gradient) {
    return !output_mask[gradient] ? Tensor()
           : gradient == 0        ? empty_images(input, format)
                                  : empty_parameter(of.channels, kFloat);
  };
  Tensor grad_input = wanted(0), grad_weight = wanted(1), grad_bias = wanted(2);
  const Tensor scratch = of.scratch();
  const Tensor rstd = train ? *spread : at::rsqrt(at::add(*spread, eps));
  prepare_kernel(zendnn_batch_normalization);
  kernels::batch_norm_backward(
      {.grad_out = grad_out.const_data_ptr(),
       .x = input.const_data_ptr(),
       .grad_x = output_mask[0] ? grad_input.mutable_data_ptr() : nullptr,
       .weight = floats_or_null(weight),
       .mean = mean->const_data_ptr<float>(),
       .rstd = rstd.const_data_ptr<float>(),
       .grad_weight = mutable_floats_or_null(grad_weight),
       .grad_bias = mutable_floats_or_null(grad_bias),
       .scratch = scratch.mutable_data_ptr<double>(),
       .batch = of.batch,
       .channels = of.channels,
       .pixels = of.pixels,
       .own = train,
       .layout = of.layout,
       .dtype = kernel_dtype(input)});
  return {std::move(grad_input), std::move(grad_weight), std::move(grad_bias)};
}

} // namespace

void list_batch_norms(torch::Library& m) {
  // .48-.9, .62-.69; to train, with its backward: .25-.45, .6-.72
  add_rows<
      Row<"aten::native_batch_norm",
          Needs::vectors,
          why_not_batch_norm,
          run_and_note<batch_norm>,
          run_and_note<at::cpu::native_batch_norm>>,
      Row<"aten::native_batch_norm_backward",
          Needs::vectors,
          why_not_batch_norm_backward,
          batch_norm_backward,
          at::cpu::native_batch_norm_backward>>(m);
}

} // namespace at::native::zendnn::cpu
