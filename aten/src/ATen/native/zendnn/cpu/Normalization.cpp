// Layer norm, RMS norm and softmax on our own kernels, for contiguous tensors.
#include <ATen/native/zendnn/cpu/Overrides.h>

#include <ATen/CPUFunctions.h>
#include <ATen/EmptyTensor.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/zendnn/cpu/Composites.h>
#include <ATen/native/zendnn/cpu/Kernels.h>
#include <ATen/native/zendnn/cpu/LeftToTorch.h>
#include <ATen/native/zendnn/cpu/Parameters.h>
#include <ATen/native/zendnn/kernels/normalization.h>

#include <ATen/ops/rms_norm_compositeimplicitautograd_dispatch.h>

#include <algorithm>
#include <limits>

namespace at::native::zendnn::cpu {
namespace {

bool takes(const Tensor& x) {
  return kernels_enabled() && is_kernel_operand(x) && x.numel() > 0 &&
         x.is_contiguous();
}

// A softmax over dimension `dim`; it may write over its operand.
void run_softmax(const Tensor& x, int64_t dim, bool log, const Tensor& out) {
  prepare_kernel(zendnn_softmax);
  const auto sizes = x.sizes();
  void* written = out.mutable_data_ptr(); // first: it may move what x shares
  kernels::softmax(
      {.x = x.const_data_ptr(),
       .out = written,
       .outer = c10::multiply_integers(sizes.slice(0, dim)),
       .dim = sizes[dim],
       .inner = c10::multiply_integers(sizes.slice(dim + 1)),
       .log = log,
       .dtype = kernel_dtype(x)});
}

bool takes_softmax(const Tensor& x, int64_t dim, bool half_to_float, bool log) {
  return takes(x) && !half_to_float && x.dim() > 0 && dim >= -x.dim() &&
         dim < x.dim() && !leaves_softmax(x, dim, log);
}

template <class Stock>
Tensor softmax(
    const Tensor& self,
    int64_t dim,
    bool half_to_float,
    bool log,
    Stock stock) {
  if (!takes_softmax(self, dim, half_to_float, log)) {
    return stock(self, dim, half_to_float);
  }
  Tensor out = at::detail::empty_cpu(self.sizes(), self.scalar_type());
  run_softmax(self, dim < 0 ? dim + self.dim() : dim, log, out);
  return out;
}

template <class Stock>
Tensor& softmax_out(
    const Tensor& self,
    int64_t dim,
    bool half_to_float,
    Tensor& out,
    bool log,
    Stock stock) {
  if (!takes_softmax(self, dim, half_to_float, log) ||
      !is_kernel_operand(out) || out.scalar_type() != self.scalar_type() ||
      out.sizes() != self.sizes() || !out.is_contiguous() ||
      !may_write(out, self)) {
    return stock(self, dim, half_to_float, out);
  }
  run_softmax(self, dim < 0 ? dim + self.dim() : dim, log, out);
  return out;
}

} // namespace

bool has_one_default_eps() {
  static const bool one = [] {
    Tensor x = at::detail::empty_cpu({1}, kBFloat16);
    x.mutable_data_ptr<BFloat16>()[0] = 0x1p-12f; // whose square is about that
    const auto y = at::compositeimplicitautograd::rms_norm(x, {1});
    return y.const_data_ptr<BFloat16>()[0] > 0.5f;
  }();
  return one;
}

std::tuple<Tensor, Tensor, Tensor> native_layer_norm(
    const Tensor& input,
    IntArrayRef normalized_shape,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& bias,
    double eps) {
  const auto sizes = input.sizes();
  const auto depth = static_cast<int64_t>(normalized_shape.size());
  const auto type = parameter_type({weight, bias}, input);
  if (!takes(input) || depth == 0 || depth > input.dim() ||
      sizes.slice(sizes.size() - depth) != normalized_shape ||
      type == ScalarType::Undefined ||
      !takes_parameter(weight, normalized_shape, input) ||
      !takes_parameter(bias, normalized_shape, input)) {
    return at::cpu::native_layer_norm(
        input, normalized_shape, weight, bias, eps);
  }
  const auto cols = c10::multiply_integers(normalized_shape);
  DimVector statistics(sizes);
  std::fill(statistics.end() - depth, statistics.end(), 1);
  Tensor out = at::detail::empty_cpu(sizes, input.scalar_type());
  Tensor mean = at::detail::empty_cpu(statistics, type);
  Tensor rstd = at::detail::empty_cpu(statistics, type);
  prepare_kernel(zendnn_layer_normalization);
  kernels::layer_norm(
      {.x = input.const_data_ptr(),
       .weight = data_or_null(weight),
       .bias = data_or_null(bias),
       .out = out.mutable_data_ptr(),
       .mean_out = mean.mutable_data_ptr(),
       .rstd_out = rstd.mutable_data_ptr(),
       .rows = input.numel() / cols,
       .cols = cols,
       .eps = static_cast<float>(eps),
       .dtype = kernel_dtype(input),
       .weight_dtype = kernel_dtype(mean)});
  return {out, mean, rstd};
}

Tensor rms_norm(
    const Tensor& input,
    c10::SymIntArrayRef normalized_shape,
    const std::optional<Tensor>& weight,
    std::optional<double> eps) {
  const auto shape = c10::asIntArrayRefSlowOpt(normalized_shape);
  const auto depth = static_cast<int64_t>(normalized_shape.size());
  // Taken from a mean of squares, it may leave nothing but what was rounded.
  const bool subtracts = eps && *eps < 0;
  const bool weighted = has(weight);
  if (!shape || is_watched() || !is_unrecorded(input) || !takes(input) ||
      depth == 0 || depth > input.dim() || subtracts ||
      (!eps && input.scalar_type() != kFloat && !has_one_default_eps()) ||
      input.sizes().slice(input.dim() - depth) != *shape ||
      (weighted && (!is_unrecorded(*weight) ||
                    weight->scalar_type() != input.scalar_type())) ||
      !takes_parameter(weight, *shape, input)) {
    return at::compositeimplicitautograd::rms_norm_symint(
        input, normalized_shape, weight, eps);
  }
  const auto cols = c10::multiply_integers(*shape);
  Tensor out = at::detail::empty_cpu(input.sizes(), input.scalar_type());
  prepare_kernel(zendnn_layer_normalization);
  kernels::rms_norm(
      {.x = input.const_data_ptr(),
       .weight = data_or_null(weight),
       .out = out.mutable_data_ptr(),
       .rows = input.numel() / cols,
       .cols = cols,
       .eps = static_cast<float>(
           eps.value_or(std::numeric_limits<float>::epsilon())),
       .dtype = kernel_dtype(input),
       .weight_dtype = kernel_dtype(input)});
  return out;
}

Tensor _softmax(const Tensor& self, int64_t dim, bool half_to_float) {
  return softmax(self, dim, half_to_float, false, at::cpu::_softmax);
}

Tensor&
_softmax_out(const Tensor& self, int64_t dim, bool half_to_float, Tensor& out) {
  return softmax_out(
      self, dim, half_to_float, out, false, at::cpu::_softmax_outf);
}

Tensor _log_softmax(const Tensor& self, int64_t dim, bool half_to_float) {
  return softmax(self, dim, half_to_float, true, at::cpu::_log_softmax);
}

Tensor& _log_softmax_out(
    const Tensor& self,
    int64_t dim,
    bool half_to_float,
    Tensor& out) {
  return softmax_out(
      self, dim, half_to_float, out, true, at::cpu::_log_softmax_outf);
}

} // namespace at::native::zendnn::cpu
