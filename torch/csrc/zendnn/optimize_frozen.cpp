#include <torch/csrc/zendnn/optimize_frozen.h>

#include <torch/csrc/jit/passes/frozen_ops_to_zendnn.h>

namespace at::native::zendnn {

void optimize_frozen(std::shared_ptr<torch::jit::Graph>& graph) {
  torch::jit::ConvertFrozenOpsToZENDNN(graph);
}

} // namespace at::native::zendnn
