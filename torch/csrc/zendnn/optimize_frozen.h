// The graph pass behind torch.jit.optimize_for_inference.
#pragma once

#include <c10/macros/Export.h>

#include <memory>

namespace torch::jit {
struct Graph;
struct Node;
} // namespace torch::jit

namespace at::native::zendnn {

// Groups the frozen graph's supported operators around its convolutions and
// runs each group on zendnn tensors, with weights converted ahead of time.
C10_EXPORT void optimize_frozen(std::shared_ptr<torch::jit::Graph>& graph);

// Whether the zendnn kernel of the node's operator takes the node's constant
// arguments. Called by the generated pass, which looks at tensors only.
bool takes_arguments(const torch::jit::Node* node);

} // namespace at::native::zendnn
