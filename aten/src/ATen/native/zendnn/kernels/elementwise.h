// Elementwise functions, and chains of them.
#pragma once

#include "types.h"

#include <ATen/native/zendnn/kernels/functions.h>

namespace at::native::zendnn::kernels {

// NaN propagates as in torch. torch/backends/zendnn/table/functions.py lists
// the functions, and the meaning of alpha and beta; `none` is x.

struct NamedFunction {
  Eltwise algorithm = Eltwise::none;
  float alpha = 0;
  float beta = 0;
};

// Contiguous; dst may be src.
struct EltwiseArgs {
  Eltwise algorithm = Eltwise::none;
  float alpha = 0;
  float beta = 0;
  const void* src = nullptr;
  void* dst = nullptr;
  int64_t size = 0;
  DType dtype{};
};

void eltwise(const EltwiseArgs& args);

// One function in a chain: of each element of its operands, which are numbers
// of places, it makes an element of `out`.
struct Instruction {
  enum class Kind : uint8_t {
    function,    // out = function(a)
    combination, // out = a op b
    choice,      // out = a ? b : c, where a has one byte per element
    conversion   // out = a in dtype, rounded to nearest even; NaN stays NaN
  };
  Kind kind = Kind::function;
  Eltwise function = Eltwise::none;
  Binary combination = Binary::add;
  float alpha = 0; // of the function
  float beta = 0;
  DType dtype{}; // of what it makes
  DType from{};  // of what it converts
  uint8_t a = 0, b = 0, c = 0, out = 0;
};

// Where a chain finds elements and leaves them, over the dimensions of all. A
// stride of 0 repeats an element, in an operand. What has no data is kept
// between the instructions, for a part of the elements at a time.
struct PointwisePlace {
  void* data = nullptr;
  const int64_t* strides = nullptr; // null: contiguous
  int64_t itemsize = 4;             // in bytes
};

inline constexpr int64_t kMostPlaces = 16;

// Goes through the elements once, over up to 8 dimensions, in parts that stay
// in the L1 cache, and executes all instructions for each part, in order. Each
// rounds its results to its dtype, as operators of their own do. Where one
// writes to memory, two places are either the same, element by element, or
// share none. Inner strides of 1, or 0 for operands, are fastest.
struct PointwiseArgs {
  const Instruction* instructions = nullptr;
  int64_t count = 0; // of instructions, at least one
  const PointwisePlace* places = nullptr;
  int64_t num_places = 0; // up to kMostPlaces
  const int64_t* sizes = nullptr;
  int64_t ndim = 0;
};

void pointwise(const PointwiseArgs& args);

} // namespace at::native::zendnn::kernels
