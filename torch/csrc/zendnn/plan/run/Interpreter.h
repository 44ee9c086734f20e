// A region in torch's own operators, one after the other: for what a plan does
// not take, where nobody has the original ones.
#pragma once

#include <torch/csrc/zendnn/plan/build/Arena.h>
#include <torch/csrc/zendnn/plan/describe/Description.h>

#include <ATen/core/ivalue.h>

namespace at::native::zendnn::plan {

// The least length of a node's arguments: None stands for operands that are
// missing at the end.
inline constexpr size_t kMostOperands = 5;

// Returns a node's result: a tensor, a list of tensors, or a number. Throws
// c10::Error as interpret() does, and Refused where no operator of torch's
// stands for the node.
c10::IValue interpret(const Node& node, const Arguments& arguments);

// Returns the region's results. It goes through the dispatcher, and so records
// gradients, obeys autocast, and takes tensors of any device. Throws c10::Error
// where the region writes to a tensor, and for what torch has no operator for.
Tensors interpret(
    const Description& region,
    const Tensors& constants,
    const Tensors& tensors,
    const Integers& numbers);

// A function of each element.
Tensor
apply(kernels::Eltwise function, const Tensor& x, double alpha, double beta);
// A function of two tensors.
Tensor combine(
    kernels::Binary function,
    const Tensor& a,
    const Tensor& b,
    Keeps keeps);
// Raises the error that torch's in-place operators raise for a result of
// another size than their target.
void check_fits(const Tensor& result, const Tensor& target);

} // namespace at::native::zendnn::plan
