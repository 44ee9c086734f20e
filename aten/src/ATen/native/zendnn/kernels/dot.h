// Linear layers of few outputs.
#pragma once

#include "elementwise.h"

namespace at::native::zendnn::kernels {

// out[i][j] = Σ x[i][k] · weight[j][k] + bias[j] over k, and then functions,
// one after the other. x is (rows, depth), the weight contiguous (outputs,
// depth), and out (rows, outputs).
struct DotArgs {
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr; // null: 0
  void* out = nullptr;
  int64_t rows = 0;
  int64_t depth = 0;
  int64_t outputs = 0;
  int64_t x_step = 0; // from row to row
  int64_t out_step = 0;
  const NamedFunction* functions = nullptr;
  int64_t function_count = 0;
  DType dtype{}; // of x and the weight
  DType bias_dtype{};
  DType out_dtype{};
};

void dot(const DotArgs& args);

} // namespace at::native::zendnn::kernels
