// Elementwise functions of one tensor on our own kernels: dense memory in any
// order of dimensions is a vector.
#include <ATen/native/zendnn/cpu/Overrides.h>

#include <ATen/CPUFunctions.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/zendnn/cpu/Heuristics.h>
#include <ATen/native/zendnn/cpu/Kernels.h>
#include <ATen/native/zendnn/kernels/elementwise.h>

namespace at::native::zendnn::cpu {
namespace {

using kernels::Eltwise;

Reason why_not_function(Eltwise function, const Tensor& self) {
  if (function == Eltwise::none) {
    return "an approximation of no known name";
  }
  if (const auto reason = why_no_operand(self)) {
    return reason;
  }
  return self.numel() == 0 ? why::kEmpty
         : !self.is_non_overlapping_and_dense()
             ? why::kOrder
             : why_leave_function(function, self.scalar_type());
}

// Whether a result can be written directly into out.
Reason why_not_into(const Tensor& out, const Tensor& self) {
  return !is_kernel_operand(out) || out.scalar_type() != self.scalar_type() ||
                 out.sizes() != self.sizes() || out.strides() != self.strides()
             ? why::kResult
         : !may_write(out, self) ? why::kOverlap
                                 : nullptr;
}

// A result with the strides of torch's kernels: those of self, unless a memory
// format describes it.
Tensor result_like(const Tensor& self) {
  for (const auto format :
       {MemoryFormat::Contiguous, MemoryFormat::ChannelsLast}) {
    if (self.is_contiguous(format)) {
      return at::detail::empty_cpu(
          self.sizes(), self.scalar_type(), false, format);
    }
  }
  return at::detail::empty_strided_cpu(
      self.sizes(), self.strides(), self.scalar_type());
}

void compute(Eltwise algorithm, const Tensor& self, const Tensor& out) {
  prepare_kernel(zendnn_eltwise);
  void* dst = out.mutable_data_ptr(); // first: it may move data of self
  kernels::eltwise(
      {.algorithm = algorithm,
       .src = self.const_data_ptr(),
       .dst = dst,
       .size = self.numel(),
       .dtype = kernel_dtype(self)});
}

// The three forms of an operator; gelu's take the name of an approximation.
template <Eltwise kFunction, class... Approximate>
struct Function {
  static Eltwise function() {
    return kFunction;
  }
  static Eltwise function(c10::string_view approximate) {
    return approximate == "none"   ? Eltwise::gelu
           : approximate == "tanh" ? Eltwise::gelu_tanh
                                   : Eltwise::none;
  }

  static Reason why_not(const Tensor& self, Approximate... approximate) {
    return why_not_function(function(approximate...), self);
  }
  static Reason why_not_out(
      const Tensor& self,
      Approximate... approximate,
      const Tensor& out) {
    const auto reason = why_not(self, approximate...);
    return reason != nullptr ? reason : why_not_into(out, self);
  }

  static Tensor run(const Tensor& self, Approximate... approximate) {
    Tensor out = result_like(self);
    compute(function(approximate...), self, out);
    return out;
  }
  static Tensor&
  run_out(const Tensor& self, Approximate... approximate, Tensor& out) {
    compute(function(approximate...), self, out);
    return out;
  }
  static Tensor& run_in_place(Tensor& self, Approximate... approximate) {
    compute(function(approximate...), self, self);
    return self;
  }
};

template <Name kName, class Of, auto kStock, auto kStockOut, auto kStockInPlace>
void add_function(torch::Library& m) {
  constexpr auto needs = Needs::vectors;
  add_rows<
      Row<kName, needs, Of::why_not, Of::run, kStock>,
      Row<kName + ".out", needs, Of::why_not_out, Of::run_out, kStockOut>,
      Row<kName + "_", needs, Of::why_not, Of::run_in_place, kStockInPlace>>(m);
}

} // namespace

void list_functions(torch::Library& m) {
  add_function<
      "aten::gelu", // .05-.87, .07-.98; tanh: .3-.38, .24-.38
      Function<Eltwise::gelu, c10::string_view>,
      at::cpu::gelu,
      at::cpu::gelu_outf,
      at::cpu::gelu_>(m);
  add_function<
      "aten::silu", // .81-.91, .72-.76
      Function<Eltwise::silu>,
      at::cpu::silu,
      at::cpu::silu_outf,
      at::cpu::silu_>(m);
  add_function<
      "aten::tanh", // not taken, .35-.73
      Function<Eltwise::tanh>,
      at::cpu::tanh,
      at::cpu::tanh_outf,
      at::cpu::tanh_>(m);
  add_function<
      "aten::sigmoid", // .69-.86, .71-.76
      Function<Eltwise::sigmoid>,
      at::cpu::sigmoid,
      at::cpu::sigmoid_outf,
      at::cpu::sigmoid_>(m);
}

} // namespace at::native::zendnn::cpu
