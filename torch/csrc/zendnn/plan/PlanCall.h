// What Python calls of plans without the detour through torch.ops, which costs
// small graphs more than plans save.
#pragma once

#include <torch/csrc/zendnn/plan/build/Arena.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>

namespace at::native::zendnn::plan {

// Runs a torch.classes.zendnn.Plan; returns nothing where it does not take
// these.
C10_EXPORT std::optional<Tensors> run_where_taken(
    const c10::IValue& plan,
    const Tensors& tensors,
    const Integers& numbers);

} // namespace at::native::zendnn::plan
