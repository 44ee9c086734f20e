// A region in torch's own operators, one after the other: for what a plan does
// not take, where nobody has the original ones.
#pragma once

#include <torch/csrc/zendnn/plan/build/Arena.h>
#include <torch/csrc/zendnn/plan/describe/Description.h>
#include <torch/csrc/zendnn/plan/run/TorchFallback.h>

namespace at::native::zendnn::plan {

// Returns a node's result: a tensor, a list of tensors, or a number. Throws
// c10::Error as interpret() does.
c10::IValue interpret(const Node& node, const Operands& given);

// Returns the region's results. It goes through the dispatcher, and so records
// gradients, obeys autocast, and takes tensors of any device. Throws c10::Error
// where the region writes to a tensor, and for what torch has no operator for.
Tensors interpret(
    const Description& region,
    const Tensors& constants,
    const Tensors& tensors,
    const Integers& numbers);

} // namespace at::native::zendnn::plan
