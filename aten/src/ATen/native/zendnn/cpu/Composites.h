// What overrides of composite operators ask of their operands: such a kernel
// comes before autograd, the transforms and whoever wants to see the operators
// that torch makes of it, and it serves all devices.
#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/zendnn/Operands.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

namespace at::native::zendnn::cpu {

// Whether somebody watches operators, or changes what they are given.
inline bool is_watched() {
  return c10::impl::TorchDispatchModeTLS::any_modes_set() ||
         at::autocast::is_autocast_enabled(kCPU);
}

// Whether torch would do no more with a tensor than compute with its memory:
// nor is a gradient wanted of it.
inline bool is_unrecorded(const Tensor& t) {
  return is_plain(t) && !(at::GradMode::is_enabled() && t.requires_grad());
}

} // namespace at::native::zendnn::cpu
