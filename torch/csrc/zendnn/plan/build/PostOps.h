// Post-ops: what a primitive applies to its result before it writes it.
#pragma once

#include <torch/csrc/zendnn/plan/build/Builder.h>
#include <torch/csrc/zendnn/plan/describe/Functions.h>

#include <ATen/native/zendnn/kernels/elementwise.h>

namespace at::native::zendnn::plan {

// How the operands of post-ops are given to a primitive.
enum class Addition : uint8_t {
  accumulate, // one of the result's size is where the result goes; the others
              // are read
  read,       // all are read
  functions,  // none: post-ops end before the first that has an operand
  none        // no post-op is attached at all
};

// How a primitive sees an operand of its post-ops, and what brings it there.
struct Seen {
  memory::desc desc;
  std::function<Ref()> read;
};

// Returns nothing for an operand that the primitive cannot read.
using See = std::function<std::optional<Seen>(int64_t operand)>;

struct Attached {
  ::zendnn::primitive_attr attributes;
  std::vector<Step::Argument> operands; // their places are not known yet
  std::vector<std::function<Ref()>> reads;
  Addition addition = Addition::none;
  bool accumulates = false; // to what lies where the result goes
  size_t taken = 0;         // how many of the node's post-ops

  // The operands in their places. It adds the steps that convert them, and so
  // is for the primitive that is going to run.
  std::vector<Step::Argument> read() const;
};

// Attaches the node's post-ops up to the first whose operand is not seen.
Attached
attach(Builder& builder, const Node& node, Addition addition, const See& see);

// An operand with as many dimensions as the result, in its own layout.
Seen see_broadcast(Builder& builder, int64_t operand, const Dims& result);

// Where the result can accumulate: the place of a tensor of its size that the
// node adds and nobody needs later; nothing where the result belongs elsewhere.
std::optional<Place> accumulator(Builder& builder, const Node& node);

// Adds steps for the post-ops from `taken` on, to a result that has a place.
void apply_rest(Builder& builder, const Node& node, size_t taken);

// Copies a value that was made aside into the concatenation that it is a part
// of.
void copy_to_slice(Builder& builder, int64_t value);

// The function of a post-op without an operand, as ZenDNN has it.
struct Function {
  ::zendnn::algorithm kind;
  float alpha, beta;
};
Function function_of(const PostOp& post);

// Whether ZenDNN has the function; one that it lacks is no post-op, and is not
// applied in blocked places, whose padding must stay 0.
bool has_primitive(kernels::Eltwise function);

// The factor by which a node's post-ops may magnify rounding errors; infinity
// where there is no bound, as for sqrt next to 0.
double magnification(const Node& node);

// Pointwise.cpp: steps in whichever layout the result's place has.

// Applies a function to a value, from one place to another; to a blocked one
// from one of the same layout.
void add_eltwise(
    Builder& builder,
    const Node& node,
    int64_t value,
    const PostOp& function,
    const Place& from,
    const Place& to);

// Combines two values, one of which may be the result, into the result's place;
// then applies a function, unless it is null.
void add_binary(
    Builder& builder,
    const Node& node,
    kernels::Binary algorithm,
    int64_t a,
    int64_t b,
    int64_t result,
    const PostOp* function);

// Adds one number to each channel of a result that has a place.
void add_to_channels(
    Builder& builder,
    const Node& node,
    int64_t vector,
    int64_t result);

} // namespace at::native::zendnn::plan
