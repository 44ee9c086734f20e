// Elementwise functions of one and of two tensors.
#pragma once

#include "types.h"

#include <ATen/native/zendnn/kernels/functions.h>

namespace at::native::zendnn::kernels {

// NaN propagates as in torch. torch/backends/zendnn/operators.py lists the
// functions, and the meaning of alpha and beta; `none` is x.

// Contiguous; dst may be src.
struct EltwiseArgs {
  Eltwise algorithm = Eltwise::none;
  float alpha = 0;
  float beta = 0;
  const void* src = nullptr;
  void* dst = nullptr;
  int64_t size = 0;
  DType dtype = DType::float32;
};

void eltwise(const EltwiseArgs& args);

// out = post(a op b) over up to 8 dimensions. A stride of 0 broadcasts an
// operand; out must not overlap itself, and may be an operand of equal strides.
// Inner strides of 1, or 0 for one operand, are fastest. The result is rounded
// to dtype before the post-op, as with two operators.
struct BinaryArgs {
  Binary algorithm = Binary::add;
  const void* a = nullptr;
  const int64_t* a_strides = nullptr;
  const void* b = nullptr;
  const int64_t* b_strides = nullptr;
  void* out = nullptr;
  const int64_t* out_strides = nullptr; // null: contiguous
  const int64_t* sizes = nullptr;
  int64_t ndim = 0;
  DType dtype = DType::float32;
  Eltwise post = Eltwise::none;
  float alpha = 0; // of post
  float beta = 0;
};

void binary(const BinaryArgs& args);

} // namespace at::native::zendnn::kernels
