// The graph pass behind torch.jit.optimize_for_inference.
#pragma once

#include <c10/macros/Export.h>

#include <memory>

namespace torch::jit {
struct Graph;
} // namespace torch::jit

namespace at::native::zendnn {

// Groups the frozen graph's supported operators around its convolutions and
// runs each group on zendnn tensors, with weights converted ahead of time.
C10_EXPORT void optimize_frozen(std::shared_ptr<torch::jit::Graph>& graph);

} // namespace at::native::zendnn
