// Checks of operands for overrides of composite operators. Such a kernel runs
// before autograd, transforms and dispatch modes see the composite's operators,
// and for all devices.
#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/zendnn/Operands.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

namespace at::native::zendnn::cpu {

// Whether a mode watches operators, or autocast converts their operands.
inline bool is_watched() {
  return c10::impl::TorchDispatchModeTLS::any_modes_set() ||
         at::autocast::is_autocast_enabled(kCPU);
}

// Whether torch would only compute with the tensor's memory, without recording
// a gradient.
inline bool is_unrecorded(const Tensor& t) {
  return is_plain(t) && !(at::GradMode::is_enabled() && t.requires_grad());
}

} // namespace at::native::zendnn::cpu
