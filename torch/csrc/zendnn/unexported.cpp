// Functions that torch's headers declare, the generated passes call, and
// libtorch keeps to itself.
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/utils/subgraph_utils.h>
#include <torch/csrc/jit/tensorexpr/kernel.h>
#include <torch/csrc/jit/tensorexpr/operators/conv2d.h>

namespace torch::jit {

std::shared_ptr<Graph> SubgraphUtils::getSubgraph(Node* n) {
  return n->g(attr::Subgraph);
}

bool tensorexpr::isContiguous(const Value* v, at::MemoryFormat memory_format) {
  const auto type = v->type()->cast<TensorType>();
  if (!type) {
    return false;
  }
  const auto sizes = type->sizes().concrete_sizes();
  const auto strides = type->strides().concrete_sizes();
  if (!sizes || !strides) {
    return false;
  }
  return at::empty_strided(*sizes, *strides, at::kMeta)
      .is_contiguous(memory_format);
}

// torch's fuser asks this to keep depthwise convolutions for its own kernels;
// a graph that is being prepared for ZenDNN has nobody else to keep them for.
bool tensorexpr::conv2dIsSupportedJit(const Node* /*node*/) {
  return false;
}

} // namespace torch::jit
