// Operators that a plan refuses for the shapes at hand and leaves to torch's
// own: each is one step, so that a refusal costs the operator, not the region.
#pragma once

#include <torch/csrc/zendnn/plan/Description.h>
#include <torch/csrc/zendnn/plan/Layouts.h>

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace at::native::zendnn::plan {

class Builder;
class Values;

// Nothing between the operators and the kernels of the CPU: no gradients, no
// autocast, no tracer, and no mode that Python has set.
class BelowEverything {
  c10::impl::ExcludeDispatchKeyGuard guard_{
      c10::autograd_dispatch_keyset_with_ADInplaceOrView |
      c10::autocast_dispatch_keyset |
      c10::DispatchKeySet(
          {c10::DispatchKey::Tracer,
           c10::DispatchKey::Python,
           c10::DispatchKey::PythonTLSSnapshot,
           c10::DispatchKey::Functionalize,
           c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
           c10::DispatchKey::FuncTorchDynamicLayerBackMode})};
};

// A node of a description that torch computes, and what that costs.
struct Left {
  int64_t node; // its index
  std::string reason;
  // What torch makes, once it has been asked.
  Dims sizes{}, strides{};
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  double milliseconds = 0; // of one run on stand-ins for its operands
};

// The refusal of one node.
struct RefusedNode : Refused {
  RefusedNode(const std::string& why, int64_t node)
      : Refused(why), node(node) {}
  int64_t node;
};

// Runs what infers or builds a node; throws RefusedNode where that refuses.
template <typename Run>
void at_node(int64_t node, const Run& run) {
  try {
    run();
  } catch (const Refused& refused) {
    throw RefusedNode(refused.what(), node);
  } catch (const ::zendnn::error& error) {
    if (error.status == zendnn_out_of_memory) {
      throw;
    }
    throw RefusedNode(std::string("ZenDNN: ") + error.what(), node);
  }
}

// Null where the plan computes the node itself.
Left* find_left(std::vector<Left>& left, int64_t node);

// Adds the node to those that are left to torch. Throws Refused, with the first
// reason, when nothing is gained by a plan without it: torch cannot be asked
// for it alone, or computes more than half of the region then.
void leave(
    const Description& region,
    const RefusedNode& refused,
    std::vector<Left>& left);

// Gives the result the type that torch gives it. Throws Refused where torch
// raises an error, or where the operands are not of one type that plans take:
// passes have assumed that they are.
void infer_by_torch(Values& values, const Node& node, Left& left);
void build_by_torch(Builder& builder, const Node& node, const Left& left);

} // namespace at::native::zendnn::plan
