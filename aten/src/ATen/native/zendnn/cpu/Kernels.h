// Common helpers of the overrides on our own vector kernels.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/native/zendnn/Dtypes.h>
#include <ATen/native/zendnn/Operands.h>
#include <ATen/native/zendnn/cpu/Row.h>
#include <oneapi/zendnn/zendnn_types.h>

namespace at::native::zendnn::cpu {

// Whether the memory of t holds plain numbers of a dtype of ours.
inline Reason why_no_operand(const Tensor& t) {
  return find_dtype(t.scalar_type()) == nullptr ? why::kType
         : !is_dense(t)                         ? why::kLayout
                                                : nullptr;
}
inline bool is_kernel_operand(const Tensor& t) {
  return why_no_operand(t) == nullptr;
}

inline kernels::DType kernel_dtype(const Tensor& t) {
  return find_dtype(t.scalar_type())->kernel;
}

// Precedes each kernel call: it counts the execution, and initialises torch's
// number of OpenMP threads in a new thread.
inline void prepare_kernel(zendnn_primitive_kind_t kind) {
  internal::lazy_init_num_threads();
  count_kernel(kind);
}

} // namespace at::native::zendnn::cpu
