// Functions of one or two elements: the rows that the build generates from
// torch/backends/zendnn/table/functions.py, by their enumerators. `in_torch` is
// torch's own function.
#pragma once

#include <ATen/native/zendnn/kernels/functions.h>

#include <ATen/core/Tensor.h>
#include <zendnn.hpp>

namespace at::native::zendnn::plan {

struct FunctionRow {
  // undef where only our kernels have it
  ::zendnn::algorithm kind = ::zendnn::algorithm::undef;
  bool own_parameters = false; // alpha and beta are the post-op's
  float alpha = 0, beta = 0;   // ZenDNN's, where they are not
  double magnifies = 1;
  // Null where torch has none: alpha·x + beta.
  Tensor (*in_torch)(const Tensor& x, double alpha, double beta) = nullptr;
};

struct CombinationRow {
  ::zendnn::algorithm kind;
  double magnifies;
  Tensor (*in_torch)(const Tensor& a, const Tensor& b);
};

struct PairRow {
  Tensor (*in_torch)(const Tensor& a, const Tensor& b);
};

const FunctionRow& row_of(kernels::Eltwise algorithm);
const CombinationRow& row_of(kernels::Binary algorithm);
const PairRow& row_of(kernels::Pair algorithm);

} // namespace at::native::zendnn::plan
