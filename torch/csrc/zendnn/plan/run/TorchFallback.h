// Operators that a plan refuses for the shapes at hand and leaves to torch's
// own: each is one step, so that a refusal costs the operator, not the region.
#pragma once

#include <ATen/native/zendnn/Route.h>
#include <torch/csrc/zendnn/plan/describe/Description.h>
#include <torch/csrc/zendnn/plan/infer/Layouts.h>

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <functional>
#include <map>
#include <new>
#include <string>
#include <vector>

namespace at::native::zendnn::plan {

class Builder;
class Values;
struct Frame;
struct Place;

// Calls the CPU's kernels directly: without gradients, autocast, tracers or
// Python's modes.
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

// Why torch computes a node, and what that costs.
struct Fallback {
  std::string label, reason;
  // What torch makes, once it has been asked.
  TensorSpec result{};
  double milliseconds = 0; // of one run on stand-ins for its operands
  bool by_route = false;   // on none of our eager operators either
};

// The refusal of one node.
struct RefusedNode : Refused {
  RefusedNode(const std::string& why, int64_t node)
      : Refused(why), node(node) {}
  int64_t node;
};

// Runs what may raise an error of ZenDNN, which becomes a refusal, or bad_alloc
// for one of memory.
template <typename Run>
auto or_refuse(const Run& run) {
  try {
    return run();
  } catch (const ::zendnn::error& error) {
    if (error.status == zendnn_out_of_memory) {
      throw std::bad_alloc();
    }
    refuse(std::string("ZenDNN: ") + error.what());
  }
}

// Runs what infers or builds a node; throws RefusedNode where that refuses.
template <typename Run>
void at_node(int64_t node, const Run& run) {
  try {
    or_refuse(run);
  } catch (const Refused& refused) {
    throw RefusedNode(refused.what(), node);
  }
}

// Leaves the node to torch. Throws Refused, with the first node's reason, when
// nothing is gained by a plan without it: torch cannot be asked for it alone,
// or computes more than half of the region then.
void fall_back(Description& region, const RefusedNode& refused);

// Leaves the nodes to torch that the route leaves; returns how many of the
// region's operators are calls of its chart. Throws Refused as fall_back()
// does.
size_t fall_back_by_route(
    Description& region,
    const Values& values,
    const route::Moment& at);

// Gives the result the type that torch gives it. Throws Refused where torch
// raises an error, or where the operands are not of one type that plans take:
// passes have assumed that they are.
void infer_by_torch(Values& values, const Node& node);
void build_by_torch(Builder& builder, const Node& node);

// What computes a node in torch's own operators, at the plain places of its
// operands and results, by value. Kernels call it for indices and offsets that
// they do not take: torch raises its error, or says what these mean.
std::function<void(const Frame&)> step_in_torch(
    const Builder& builder,
    const Node& node,
    const std::map<int64_t, Place>& places);

// Whether strides span little more memory than the elements need.
bool is_compact(const TensorSpec& spec);

} // namespace at::native::zendnn::plan
