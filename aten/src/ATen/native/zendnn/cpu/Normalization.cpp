// Layer norm, RMS norm and softmax on our own kernels, for contiguous tensors.
#include <ATen/native/zendnn/cpu/Overrides.h>

#include <ATen/CPUFunctions.h>
#include <ATen/EmptyTensor.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/zendnn/cpu/Composites.h>
#include <ATen/native/zendnn/cpu/Heuristics.h>
#include <ATen/native/zendnn/cpu/Kernels.h>
#include <ATen/native/zendnn/cpu/Parameters.h>
#include <ATen/native/zendnn/kernels/normalization.h>

#include <ATen/ops/rms_norm_compositeimplicitautograd_dispatch.h>

#include <algorithm>
#include <limits>

namespace at::native::zendnn::cpu {
namespace {

Reason why_not_normalize(const Tensor& x) {
  const auto reason = why_no_operand(x);
  return reason != nullptr    ? reason
         : x.numel() == 0     ? why::kEmpty
         : !x.is_contiguous() ? why::kOrder
                              : nullptr;
}

// A softmax over dimension `dim`; it may run in place.
void run_softmax(const Tensor& x, int64_t dim, bool log, const Tensor& out) {
  // In a whole tree, torchgen declares a kernel of this name in at::native.
  prepare_kernel(::zendnn_softmax);
  const auto sizes = x.sizes();
  void* written = out.mutable_data_ptr(); // first: it may move data x shares
  kernels::softmax(
      {.x = x.const_data_ptr(),
       .out = written,
       .outer = c10::multiply_integers(sizes.slice(0, dim)),
       .dim = sizes[dim],
       .inner = c10::multiply_integers(sizes.slice(dim + 1)),
       .log = log,
       .dtype = kernel_dtype(x)});
}

// Softmax, or its logarithm.
template <bool kLog>
struct Softmax {
  static Reason why_not(const Tensor& self, int64_t dim, bool half_to_float) {
    if (const auto reason = why_not_normalize(self)) {
      return reason;
    }
    return half_to_float ? why::kType
           : dim < -self.dim() || dim >= self.dim()
               ? why::kSizes
               : why_leave_softmax(self, dim, kLog);
  }
  static Reason why_not_out(
      const Tensor& self,
      int64_t dim,
      bool half_to_float,
      const Tensor& out) {
    const auto reason = why_not(self, dim, half_to_float);
    return reason != nullptr ? reason
           : !is_kernel_operand(out) ||
                   out.scalar_type() != self.scalar_type() ||
                   out.sizes() != self.sizes() || !out.is_contiguous()
               ? why::kResult
           : !may_write(out, self) ? why::kOverlap
                                   : nullptr;
  }

  static Tensor run(const Tensor& self, int64_t dim, bool half_to_float) {
    Tensor out = at::detail::empty_cpu(self.sizes(), self.scalar_type());
    return run_out(self, dim, half_to_float, out);
  }
  static Tensor& run_out(
      const Tensor& self,
      int64_t dim,
      bool /*half_to_float*/,
      Tensor& out) {
    run_softmax(self, dim < 0 ? dim + self.dim() : dim, kLog, out);
    return out;
  }
};

Reason why_not_layer_norm(
    const Tensor& input,
    IntArrayRef normalized_shape,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& bias,
    double /*eps*/) {
  const auto depth = static_cast<int64_t>(normalized_shape.size());
  const auto sizes = input.sizes();
  if (const auto reason = why_not_normalize(input)) {
    return reason;
  }
  if (depth == 0 || depth > input.dim() ||
      sizes.slice(sizes.size() - depth) != normalized_shape) {
    return why::kSizes;
  }
  return parameter_type({weight, bias}, input) == ScalarType::Undefined ||
                 !takes_parameter(weight, normalized_shape, input) ||
                 !takes_parameter(bias, normalized_shape, input)
             ? why::kParameter
             : nullptr;
}

std::tuple<Tensor, Tensor, Tensor> layer_norm(
    const Tensor& input,
    IntArrayRef normalized_shape,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& bias,
    double eps) {
  const auto sizes = input.sizes();
  const auto depth = normalized_shape.size();
  const auto type = parameter_type({weight, bias}, input);
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

Reason why_not_rms_norm(
    const Tensor& input,
    c10::SymIntArrayRef normalized_shape,
    const std::optional<Tensor>& weight,
    std::optional<double> eps) {
  const auto shape = c10::asIntArrayRefSlowOpt(normalized_shape);
  const auto depth = static_cast<int64_t>(normalized_shape.size());
  if (!shape) {
    return "sizes that are symbols";
  }
  if (is_watched() || !is_unrecorded(input) ||
      (has(weight) && !is_unrecorded(*weight))) {
    return why::kWatched;
  }
  if (const auto reason = why_not_normalize(input)) {
    return reason;
  }
  // The sum with a mean of squares may cancel to mere rounding errors.
  if (eps && *eps < 0) {
    return "a negative epsilon";
  }
  if (!eps && input.scalar_type() != kFloat && !has_one_default_eps()) {
    return "an epsilon that depends on the type";
  }
  if (depth == 0 || depth > input.dim() ||
      input.sizes().slice(input.dim() - depth) != *shape) {
    return why::kSizes;
  }
  return (has(weight) && weight->scalar_type() != input.scalar_type()) ||
                 !takes_parameter(weight, *shape, input)
             ? why::kParameter
             : nullptr;
}

Tensor run_rms_norm(
    const Tensor& input,
    c10::SymIntArrayRef normalized_shape,
    const std::optional<Tensor>& weight,
    std::optional<double> eps) {
  const auto cols =
      c10::multiply_integers(C10_AS_INTARRAYREF_SLOW(normalized_shape));
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

} // namespace

bool has_one_default_eps() {
  static const bool one = [] {
    Tensor x = at::detail::empty_cpu({1}, kBFloat16);
    x.mutable_data_ptr<BFloat16>()[0] = 0x1p-12f; // its square is about epsilon
    const auto y = at::compositeimplicitautograd::rms_norm(x, {1});
    return y.const_data_ptr<BFloat16>()[0] > 0.5f;
  }();
  return one;
}

void list_normalizations(torch::Library& m) {
  add_rows<
      Row<"aten::native_layer_norm", // .26-.98, .59-.81
          Needs::vectors,
          why_not_layer_norm,
          layer_norm,
          at::cpu::native_layer_norm>,
      Row<"aten::_softmax", // .05-.99, .09-1.0
          Needs::vectors,
          Softmax<false>::why_not,
          Softmax<false>::run,
          at::cpu::_softmax>,
      Row<"aten::_softmax.out",
          Needs::vectors,
          Softmax<false>::why_not_out,
          Softmax<false>::run_out,
          at::cpu::_softmax_outf>,
      Row<"aten::_log_softmax", // .06-1.0, .05-1.0
          Needs::vectors,
          Softmax<true>::why_not,
          Softmax<true>::run,
          at::cpu::_log_softmax>,
      Row<"aten::_log_softmax.out",
          Needs::vectors,
          Softmax<true>::why_not_out,
          Softmax<true>::run_out,
          at::cpu::_log_softmax_outf>>(m);
}

void list_rms_norms(torch::Library& m) {
  add_rows<
      Row<"aten::rms_norm", // .15-.23, .04-.13
          Needs::vectors,
          why_not_rms_norm,
          run_rms_norm,
          at::compositeimplicitautograd::rms_norm_symint>>(m);
}

} // namespace at::native::zendnn::cpu
