// Post-ops: what a primitive does to its result before it writes it.
#pragma once

#include <torch/csrc/zendnn/plan/Builder.h>

namespace at::native::zendnn::plan {

// How operands of the same size as the result are added.
enum class Addition : uint8_t {
  accumulate, // into the operand's memory, which ends up holding the result
  read,       // from the operand's memory
  none        // no post-op is attached at all
};

struct Attached {
  ::zendnn::primitive_attr attributes;
  std::vector<Step::Argument> arguments;
  std::optional<Place> accumulator; // where the result must go
  size_t taken = 0;                 // how many of the node's post-ops
};

// Attaches the node's post-ops. `see` says how the primitive sees an operand,
// and returns nothing when it cannot; then, nothing is attached.
using See =
    std::function<std::optional<std::pair<memory::desc, Ref>>(int64_t operand)>;
Attached
attach(Builder& builder, const Node& node, Addition addition, const See& see);

// A tensor seen with leading dimensions of size one, as many as the result has.
memory::desc widened(const memory::desc& narrow, const Dims& result);

// An operand with as many dimensions as the result, in its own layout.
std::optional<std::pair<memory::desc, Ref>>
see_broadcast(Builder& builder, int64_t operand, const Dims& result);

// Whether accumulating applies: the node adds a tensor of the result's size
// that nobody needs later.
bool can_accumulate(const Builder& builder, const Node& node);

// Adds steps for the post-ops from `taken` on, to a result that has a place.
void apply_rest(Builder& builder, const Node& node, size_t taken);

// Throws Refused unless every binary post-op's operand broadcasts to the
// result.
void check_post_ops(const Builder& builder, const Node& node);

// Throws Refused for an unknown name.
::zendnn::algorithm eltwise_algorithm(const std::string& name);
::zendnn::algorithm binary_algorithm(const std::string& name);

// A text that two nodes share when their post-ops are of one kind.
std::string post_op_key(const Builder& builder, const Node& node);

} // namespace at::native::zendnn::plan
