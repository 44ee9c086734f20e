// Dense convolutions: conv1d to conv3d, their transposes and nn.Conv* all call
// aten::_convolution. Gradients are torch's, except where its kernel is wrong.
#include <ATen/native/zendnn/cpu/Overrides.h>

#include <ATen/native/ConvUtils.h>
#include <ATen/native/zendnn/NativeFunctions.h>
#include <ATen/native/zendnn/Operands.h>
#include <ATen/native/zendnn/Utils.h>
#include <ATen/native/zendnn/cpu/Heuristics.h>
#include <ATen/native/zendnn/cpu/PlainConvolution.h>
#include <ATen/native/zendnn/cpu/Row.h>
#include <ATen/native/zendnn/kernels/windows.h>
#include <ATen/ops/_convolution_native.h>
#include <ATen/ops/convolution_backward_native.h>
#include <ATen/ops/empty.h>

#include <algorithm>

namespace at::native::zendnn::cpu {
namespace {

bool all_positive(IntArrayRef sizes) {
  return std::all_of(
      sizes.begin(), sizes.end(), [](int64_t size) { return size > 0; });
}

// One value applies to all spatial dimensions.
bool fits(IntArrayRef param, int64_t spatial) {
  const auto size = static_cast<int64_t>(param.size());
  return size == spatial || size == 1;
}

} // namespace

Reason why_not_window(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool transposed,
    IntArrayRef output_padding,
    int64_t groups) {
  const auto channels_out =
      transposed ? weight.size(1) * groups : weight.size(0);
  const auto channels_in =
      transposed ? weight.size(0) : weight.size(1) * groups;
  if (has(bias) &&
      (!is_dense(*bias) || bias->scalar_type() != input.scalar_type() ||
       bias->dim() != 1 || bias->size(0) != channels_out)) {
    return why::kParameter;
  }
  const auto spatial = input.dim() - 2;
  if (!fits(stride, spatial) || !fits(padding, spatial) ||
      !fits(dilation, spatial) || !fits(output_padding, spatial) ||
      !all_positive(stride) || !all_positive(dilation) ||
      channels_in != input.size(1) || channels_in % groups != 0 ||
      channels_out % groups != 0) {
    return why::kSizes;
  }
  if (!all_positive(input.sizes()) || !all_positive(weight.sizes())) {
    return why::kEmpty;
  }
  const auto at = [](IntArrayRef param, int64_t i) {
    return param.size() == 1 ? param[0] : param[i];
  };
  for (int64_t i = 0; i < spatial; ++i) {
    const auto size = input.size(i + 2), pad = at(padding, i);
    const auto extra = at(output_padding, i);
    if (std::max({at(stride, i), pad, at(dilation, i), extra}) >
        kernels::kLargestArgument) {
      return why::kWindow;
    }
    const auto kernel = at(dilation, i) * (weight.size(i + 2) - 1) + 1;
    // An extra as large as the stride is more than ZenDNN can describe.
    if (pad < 0 || extra < 0 ||
        (transposed
             ? extra >= at(stride, i) ||
                   (size - 1) * at(stride, i) - 2 * pad + kernel + extra <= 0
             : size + 2 * pad < kernel)) {
      return why::kWindow;
    }
  }
  return input.dim() == 5 && input.size(0) == 1 &&
                 mkldnn_conv_use_channels_last(input, weight)
             ? why::kStrides
             : nullptr;
}

namespace {

bool all_equal(IntArrayRef param, int64_t value) {
  return std::all_of(
      param.begin(), param.end(), [=](int64_t i) { return i == value; });
}

// The pixels that a kernel of size 1 reads.
Tensor strided(const Tensor& input, IntArrayRef stride) {
  Tensor points = input;
  for (int64_t i = 0; i < input.dim() - 2; ++i) {
    points = stride[i] == 1 ? points
                            : points.slice(i + 2, 0, std::nullopt, stride[i]);
  }
  return points;
}

// A convolution with a kernel of size 1 multiplies the weights by the image in
// place, where other convolutions first reorder both into blocks. It is slower
// only for batches of small plain images, each of which is a separate product,
// and for many rows where channels are last or an image is one point.
bool is_product(
    int64_t batch,
    int64_t image, // points of each
    const Tensor& weight,
    IntArrayRef padding,
    int64_t groups,
    MemoryFormat format) {
  if (groups != 1 || !all_equal(weight.sizes().slice(2), 1) ||
      !all_equal(padding, 0)) {
    return false;
  }
  if (format != MemoryFormat::Contiguous || image == 1) {
    return batch * image <= value_of(Threshold::pointwise_rows);
  }
  return are_faster_one_by_one(batch, image, weight.numel());
}

// How often a weight is multiplied: by each point of the results, or of the
// inputs of a transposed convolution.
int64_t uses_of_weights(
    const Tensor& input,
    const Tensor& weight,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool transposed) {
  const auto at = [](IntArrayRef param, int64_t i) {
    return param.size() == 1 ? param[0] : param[i];
  };
  auto uses = input.size(0);
  for (int64_t i = 0; i < input.dim() - 2; ++i) {
    const auto size = input.size(i + 2);
    const auto kernel = at(dilation, i) * (weight.size(i + 2) - 1) + 1;
    uses *= transposed
                ? size
                : (size + 2 * at(padding, i) - kernel) / at(stride, i) + 1;
  }
  return uses;
}

// Whether weights would be brought into blocks for less than that takes, where
// torch would not.
bool is_too_little(
    const Tensor& input,
    const Tensor& weight,
    bool has_bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool transposed,
    int64_t groups) {
  const auto uses =
      uses_of_weights(input, weight, stride, padding, dilation, transposed);
  const bool is_point = !transposed && all_equal(stride, 1) &&
                        all_equal(weight.sizes().slice(2), 1);
  if (!torch_reads_plain(input, weight, is_point, groups) ||
      (!are_few_uses(uses) && !is_little_work(uses * weight.numel()))) {
    return false;
  }
  if (transposed) {
    return true;
  }
  const bool last =
      input.dim() > 3 && mkldnn_conv_use_channels_last(input, weight);
  if (!last && input.dim() < 5 &&
      convolves_plain(
          input, weight, has_bias, stride, padding, dilation, groups)) {
    return false;
  }
  const auto batch = input.size(0);
  return are_few_uses(uses) ||
         !is_product(
             batch,
             uses / batch,
             weight,
             padding,
             groups,
             last ? MemoryFormat::ChannelsLast : MemoryFormat::Contiguous);
}

Reason why_not_convolve(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool transposed,
    IntArrayRef output_padding,
    int64_t groups,
    bool /*benchmark*/,
    bool /*deterministic*/,
    bool /*cudnn_enabled*/,
    bool /*allow_tf32*/) {
  const auto dim = input.dim();
  if (dim < 3 || dim > 5 || weight.dim() != dim || groups < 1) {
    return why::kSizes;
  }
  if (!is_dense(input) || !is_dense(weight)) {
    return why::kLayout;
  }
  const auto dtype = input.scalar_type();
  if (weight.scalar_type() != dtype) {
    return why::kTypes;
  }
  if (!takes_dtype(dtype)) {
    return why::kType;
  }
  if (const auto reason =
          why_leave_convolution(dtype, transposed, weight.size(1))) {
    return reason;
  }
  if (const auto reason = why_not_window(
          input,
          weight,
          bias,
          stride,
          padding,
          dilation,
          transposed,
          output_padding,
          groups)) {
    return reason;
  }
  return is_too_little(
             input,
             weight,
             has(bias),
             stride,
             padding,
             dilation,
             transposed,
             groups)
             ? "too little work to bring weights into blocks for"
             : nullptr;
}

Tensor multiply_points(
    const Tensor& points,
    const Tensor& weight,
    const Tensor& bias,
    MemoryFormat format) {
  const auto batch = points.size(0), in = points.size(1), out = weight.size(0);
  const auto matrix = weight.reshape({out, in});
  DimVector sizes(points.sizes());
  sizes[1] = out;
  if (format != MemoryFormat::Contiguous) {
    auto result = at::empty(sizes, points.options().memory_format(format));
    const auto x = points.movedim(1, -1).reshape({-1, in});
    auto y = result.movedim(1, -1).view({-1, out});
    product_out(bias, x, matrix.t(), y);
    return result;
  }
  const auto x = points.contiguous().view({batch, in, -1});
  if (batch > 1 && x.size(2) == 1) {
    return product(bias, x.squeeze(2), matrix.t()).view(sizes);
  }
  const auto column = bias.defined() ? bias.unsqueeze(1) : bias;
  return (batch == 1 ? product(column, matrix, x[0])
                     : product(column, matrix.expand({batch, out, in}), x))
      .view(sizes);
}

Tensor convolve_taken(
    const Tensor& input,
    const Tensor& weight,
    const Tensor& bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool transposed,
    IntArrayRef output_padding,
    int64_t groups) {
  if (input.dim() == 3) {
    // As in torch, never channels-last.
    return convolve_taken(
               input.contiguous().unsqueeze(2),
               weight.unsqueeze(2),
               bias,
               with_height(stride, 1),
               with_height(padding, 0),
               with_height(dilation, 1),
               transposed,
               transposed ? with_height(output_padding, 0) : DimVector(),
               groups)
        .squeeze(2);
  }
  const auto channels_last = input.dim() == 5 ? MemoryFormat::ChannelsLast3d
                                              : MemoryFormat::ChannelsLast;
  const auto format = mkldnn_conv_use_channels_last(input, weight)
                          ? channels_last
                          : MemoryFormat::Contiguous;
  const auto b = bias.defined() ? bias.contiguous() : bias;
  if (!transposed) {
    const auto points = strided(input, stride);
    const auto image = c10::multiply_integers(points.sizes().slice(2));
    const bool multiplies =
        is_product(points.size(0), image, weight, padding, groups, format);
    if (input.dim() == 4 && format == MemoryFormat::Contiguous &&
        !(multiplies && image == 1)) {
      if (auto result = convolve_plain(
              input, weight, b, stride, padding, dilation, groups)) {
        return *std::move(result);
      }
    }
    if (multiplies) {
      return multiply_points(points, weight, b, format);
    }
  }
  const auto x = input.contiguous(format), w = weight.contiguous(format);
  if (transposed) {
    return zendnn_convolution_transpose_stub(
        x, w, b, padding, output_padding, stride, dilation, groups);
  }
  return zendnn_convolution(x, w, b, padding, stride, dilation, groups);
}

Tensor convolve(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool transposed,
    IntArrayRef output_padding,
    int64_t groups,
    bool /*benchmark*/,
    bool /*deterministic*/,
    bool /*cudnn_enabled*/,
    bool /*allow_tf32*/) {
  const auto spatial = input.dim() - 2;
  return convolve_taken(
      input,
      weight,
      bias.value_or(Tensor()),
      in_each(stride, spatial),
      in_each(padding, spatial),
      in_each(dilation, spatial),
      transposed,
      in_each(output_padding, spatial),
      groups);
}

using Gradients = std::tuple<Tensor, Tensor, Tensor>;

// Whether torch's oneDNN may compute the gradient of the weights from a copy of
// the strided image's points, and write that past its workspace
// (uxlfoundation/oneDNN#6035). zendnnify mends ours.
bool is_copied_past_the_end(
    const Tensor& input,
    const Tensor& weight,
    IntArrayRef stride,
    int64_t groups,
    std::array<bool, 3> wanted) {
  constexpr int64_t kBlock = 16;
  const auto dim = input.dim();
  return !all_equal(stride, 1) && (wanted[1] || wanted[2]) && groups == 1 &&
         (dim == 3 || dim == 4) && weight.dim() == dim &&
         weight.size(1) < kBlock && all_equal(weight.sizes().slice(2), 1);
}

Reason why_not_differentiate(
    const Tensor& grad_output,
    const Tensor& input,
    const Tensor& weight,
    OptionalIntArrayRef /*bias_sizes*/,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool transposed,
    IntArrayRef output_padding,
    int64_t groups,
    std::array<bool, 3> output_mask) {
  if (!is_copied_past_the_end(input, weight, stride, groups, output_mask)) {
    return "a gradient that torch computes";
  }
  if (!is_dense(input) || !is_dense(weight) || !is_dense(grad_output)) {
    return why::kLayout;
  }
  const auto dtype = input.scalar_type();
  if (weight.scalar_type() != dtype || grad_output.scalar_type() != dtype) {
    return why::kTypes;
  }
  if (!takes_dtype(dtype)) {
    return why::kType;
  }
  if (const auto reason = why_not_window(
          input,
          weight,
          std::nullopt,
          stride,
          padding,
          dilation,
          transposed,
          output_padding,
          groups)) {
    return reason;
  }
  const auto spatial = input.dim() - 2;
  const auto pad = in_each(padding, spatial), step = in_each(stride, spatial),
             apart = in_each(dilation, spatial),
             extra = in_each(output_padding, spatial);
  return grad_output.sizes() !=
                 (transposed
                      ? conv_input_size(
                            input.sizes(),
                            weight.sizes(),
                            pad,
                            extra,
                            step,
                            apart,
                            groups)
                      : conv_output_size(
                            input.sizes(), weight.sizes(), pad, step, apart))
             ? why::kSizes
             : nullptr;
}

Gradients differentiate(
    const Tensor& grad_output,
    const Tensor& input,
    const Tensor& weight,
    OptionalIntArrayRef bias_sizes,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool transposed,
    IntArrayRef output_padding,
    int64_t groups,
    std::array<bool, 3> output_mask) {
  if (input.dim() == 3) {
    auto [x, w, b] = differentiate(
        grad_output.unsqueeze(2),
        input.unsqueeze(2),
        weight.unsqueeze(2),
        bias_sizes,
        with_height(stride, 1),
        with_height(padding, 0),
        with_height(dilation, 1),
        transposed,
        with_height(output_padding, 0),
        groups,
        output_mask);
    const auto flat = [](const Tensor& t) {
      return t.defined() ? t.squeeze(2) : t;
    };
    return {flat(x), flat(w), b};
  }
  return transposed ? zendnn_convolution_transpose_backward_stub(
                          input,
                          grad_output,
                          weight,
                          padding,
                          output_padding,
                          stride,
                          dilation,
                          groups,
                          output_mask)
                    : zendnn_convolution_backward_stub(
                          input,
                          grad_output,
                          weight,
                          padding,
                          stride,
                          dilation,
                          groups,
                          output_mask);
}

} // namespace

void list_convolutions(torch::Library& m) {
  add_rows<
      Row<"aten::_convolution", // .19-1.0, .14-1.0
          Needs::primitives,
          why_not_convolve,
          convolve,
          static_cast<decltype(&convolve)>(at::native::_convolution)>,
      Row<"aten::convolution_backward",
          Needs::primitives,
          why_not_differentiate,
          differentiate,
          static_cast<decltype(&differentiate)>(
              at::native::convolution_backward)>>(m);
}

} // namespace at::native::zendnn::cpu
