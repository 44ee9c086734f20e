// What overrides of composite operators ask of their operands: such a kernel
// comes before autograd, the transforms and whoever wants to see the operators
// that torch makes of it, and it serves all devices.
#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

namespace at::native::zendnn::cpu {

// Whether somebody watches operators, or changes what they are given.
inline bool is_watched() {
  return c10::impl::TorchDispatchModeTLS::any_modes_set() ||
         at::autocast::is_autocast_enabled(kCPU);
}

// Whether a tensor in memory is all that there is: no subclass, no transform,
// no view that a bit changes, no gradient wanted.
inline bool is_plain(const Tensor& t) {
  constexpr c10::DispatchKeySet other{
      c10::DispatchKey::Python,
      c10::DispatchKey::FuncTorchBatched,
      c10::DispatchKey::FuncTorchGradWrapper,
      c10::DispatchKey::Functionalize,
      c10::DispatchKey::Conjugate,
      c10::DispatchKey::Negative,
      c10::DispatchKey::ZeroTensor};
  return t.defined() && t.layout() == kStrided && t.device().is_cpu() &&
         !t.key_set().has_any(other) && !t._fw_grad(/*level=*/0).defined() &&
         !(at::GradMode::is_enabled() && t.requires_grad());
}

} // namespace at::native::zendnn::cpu
