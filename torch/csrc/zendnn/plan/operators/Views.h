// Where views lie.
#pragma once

#include <torch/csrc/zendnn/plan/build/Kernel.h>

namespace at::native::zendnn::plan {

struct MadeView {
  Dims sizes, strides;
  Number offset; // in bytes
  bool copied;   // a view of a row-major copy, since strides cannot say it
};

// What a view operator makes of an operand with these strides. Sizes do not
// depend on strides, so this serves to infer and to build.
MadeView make_view(const Values& values, const Node& node, const Dims& strides);

} // namespace at::native::zendnn::plan
