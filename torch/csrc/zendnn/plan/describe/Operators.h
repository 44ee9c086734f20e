// The operators that a plan knows. The build generates their enumerators,
// attributes and functions' declarations, and the table that lists them, from
// torch/backends/zendnn/table/operators.py.
#pragma once

#include <ATen/native/zendnn/kernels/windows.h>
#include <torch/csrc/zendnn/plan/build/Builder.h>

namespace at::native::zendnn::plan {

// A row of the table of operators.
enum class Results : uint8_t {
  tensor,
  one_or_two, // tensors
  tensors,    // as many as the operator finds right
  number
};

// Which operands' strides torch's results take over: with `elements`, all those
// that are combined element by element.
enum class Follows : uint8_t {
  nothing, // they are row-major, or the operator is a view
  input,
  input_or_weight,
  all,
  elements
};

struct Operator {
  std::string_view name;
  // Gives the results their sizes and dtypes.
  void (*infer)(Values&, const Node&);
  // Gives the results their places, and adds the steps that fill them.
  void (*build)(Builder&, const Node&);
  // Returns what torch's own operators make of a node without post-ops: a
  // tensor, a list of tensors, or a number. Throws Refused as interpret() does.
  c10::IValue (*compute)(const Node&, const Arguments&);
  // A letter for each operand: t, a tensor; n, a number; T and N, which may be
  // none, or missing at the end. A star repeats the letter before it, or leaves
  // it out.
  std::string_view operands;
  std::vector<std::string_view> keys{};     // of its attributes
  std::vector<std::string_view> required{}; // those without a default
  Attributes attributes{};                  // by default
  Results results = Results::tensor;
  bool post_ops = false;
  bool casts = false; // autocast computes it in its own type
  bool is_view = false;
  bool writes = false;     // to its first operand, which its result is
  bool keeps_gaps = false; // that the strides of its result leave
  bool falls_back = false; // to torch, for shapes that plans refuse
  Follows follows = Follows::nothing;
  // What its kernels count as.
  zendnn_primitive_kind_t kind = zendnn_undefined_primitive;
};
// In the order of Op.
const std::vector<Operator>& operators();
inline const Operator& row_of(Op op) {
  return operators()[static_cast<size_t>(op)];
}
inline std::string name_of(Op op) {
  return std::string(row_of(op).name);
}
// Throws Refused where there is none of this name.
Op op_named(std::string_view name);
// Throws Refused where a node is not as the table says: its operands, results
// or post-ops.
void check_operators(const Description& region);

// The sizes that a reduction leaves; without `dims` all dimensions are reduced.
Dims reduced_sizes(const Dims& sizes, const Dims& dims, bool keep);

// Strides of an operand over the result's dimensions; 0 where it repeats.
Dims broadcast_strides(
    const Dims& sizes,
    const Dims& strides,
    const Dims& result);

// A value operand; throws Refused when it is something else.
inline int64_t tensor(const Node& node, size_t index) {
  if (index >= node.inputs.size() ||
      node.inputs[index].kind != Operand::Kind::value) {
    refuse(
        "operator " + name_of(node.op) + " without operand " +
        std::to_string(index));
  }
  return node.inputs[index].index;
}

// Whether the operator has this operand: it is there, and not `none`.
inline bool has(const Node& node, size_t index) {
  return index < node.inputs.size() && node.inputs[index];
}

// torch's message for an index out of range.
inline constexpr const char* kOutOfRange = "index out of range in self";

using kernels::kLargestArgument;

// A list with a number for each dimension; one number stands for all of them.
// Throws Refused when one of them is less than the least, or larger than
// kLargestArgument.
inline Dims
spread(Dims numbers, size_t dimensions, int64_t otherwise, int64_t least = 0) {
  if (numbers.empty()) {
    numbers.push_back(otherwise);
  }
  if (numbers.size() == 1) {
    numbers.resize(dimensions, numbers[0]);
  }
  if (numbers.size() != dimensions) {
    refuse("an operator with an argument for another number of dimensions");
  }
  for (const auto number : numbers) {
    if (number < least || number > kLargestArgument) {
      refuse("a window with an argument of " + std::to_string(number));
    }
  }
  return numbers;
}

} // namespace at::native::zendnn::plan
