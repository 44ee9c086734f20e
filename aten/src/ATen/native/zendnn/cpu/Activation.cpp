// Elementwise functions of one tensor on our own kernels: dense memory in any
// order of dimensions is one long vector.
#include <ATen/native/zendnn/cpu/Overrides.h>

#include <ATen/CPUFunctions.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/zendnn/cpu/Kernels.h>
#include <ATen/native/zendnn/cpu/LeftToTorch.h>
#include <ATen/native/zendnn/kernels/elementwise.h>

namespace at::native::zendnn::cpu {
namespace {

using kernels::Eltwise;

bool takes(Eltwise algorithm, const Tensor& self) {
  return kernels_enabled() && is_kernel_operand(self) && self.numel() > 0 &&
         self.is_non_overlapping_and_dense() &&
         !leaves_function(algorithm, self.scalar_type());
}

// Whether a result can be written into out as it is.
bool takes_out(const Tensor& out, const Tensor& self) {
  return is_kernel_operand(out) && out.scalar_type() == self.scalar_type() &&
         out.sizes() == self.sizes() && out.strides() == self.strides() &&
         may_write(out, self);
}

// The strides that torch's kernels give the result: those of self, where they
// say more than a memory format does.
Tensor make_out(const Tensor& self) {
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

void run(Eltwise algorithm, const Tensor& self, const Tensor& out) {
  prepare_kernel(zendnn_eltwise);
  void* dst = out.mutable_data_ptr(); // first: it may move what self shares
  kernels::eltwise(
      {.algorithm = algorithm,
       .src = self.const_data_ptr(),
       .dst = dst,
       .size = self.numel(),
       .dtype = kernel_dtype(self)});
}

// The three forms of an operator. `stock` calls torch's kernel.

template <class Stock>
Tensor apply(Eltwise algorithm, const Tensor& self, Stock stock) {
  if (!takes(algorithm, self)) {
    return stock();
  }
  Tensor out = make_out(self);
  run(algorithm, self, out);
  return out;
}

template <class Stock>
Tensor&
apply_out(Eltwise algorithm, const Tensor& self, Tensor& out, Stock stock) {
  if (!takes(algorithm, self) || !takes_out(out, self)) {
    return stock();
  }
  run(algorithm, self, out);
  return out;
}

template <class Stock>
Tensor& apply_in_place(Eltwise algorithm, Tensor& self, Stock stock) {
  if (!takes(algorithm, self)) {
    return stock();
  }
  run(algorithm, self, self);
  return self;
}

// none where torch's kernel shall report an unknown name.
Eltwise gelu_named(std::string_view approximate) {
  return approximate == "none"   ? Eltwise::gelu
         : approximate == "tanh" ? Eltwise::gelu_tanh
                                 : Eltwise::none;
}

} // namespace

Tensor gelu(const Tensor& self, std::string_view approximate) {
  const auto algorithm = gelu_named(approximate);
  const auto stock = [&] { return at::cpu::gelu(self, approximate); };
  return algorithm == Eltwise::none ? stock() : apply(algorithm, self, stock);
}

Tensor&
gelu_out(const Tensor& self, std::string_view approximate, Tensor& out) {
  const auto algorithm = gelu_named(approximate);
  const auto stock = [&]() -> Tensor& {
    return at::cpu::gelu_outf(self, approximate, out);
  };
  return algorithm == Eltwise::none ? stock()
                                    : apply_out(algorithm, self, out, stock);
}

Tensor& gelu_(Tensor& self, std::string_view approximate) {
  const auto algorithm = gelu_named(approximate);
  const auto stock = [&]() -> Tensor& {
    return at::cpu::gelu_(self, approximate);
  };
  return algorithm == Eltwise::none ? stock()
                                    : apply_in_place(algorithm, self, stock);
}

#define ZENDNN_UNARY(name)                                                  \
  Tensor name(const Tensor& self) {                                         \
    return apply(Eltwise::name, self, [&] { return at::cpu::name(self); }); \
  }                                                                         \
  Tensor& name##_out(const Tensor& self, Tensor& out) {                     \
    return apply_out(Eltwise::name, self, out, [&]() -> Tensor& {           \
      return at::cpu::name##_outf(self, out);                               \
    });                                                                     \
  }                                                                         \
  Tensor& name##_(Tensor& self) {                                           \
    return apply_in_place(Eltwise::name, self, [&]() -> Tensor& {           \
      return at::cpu::name##_(self);                                        \
    });                                                                     \
  }

ZENDNN_UNARY(silu)
ZENDNN_UNARY(tanh)
ZENDNN_UNARY(sigmoid)

#undef ZENDNN_UNARY

} // namespace at::native::zendnn::cpu
