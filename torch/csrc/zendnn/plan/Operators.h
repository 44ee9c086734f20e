// The operators that a plan knows, one pair of functions each; the table that
// lists them is in Operators.cpp.
#pragma once

#include <torch/csrc/zendnn/plan/Builder.h>

namespace at::native::zendnn::plan {

// Convolution.cpp
void infer_convolution(Builder& builder, const Node& node);
void build_convolution(Builder& builder, const Node& node);

// Matmul.cpp
void infer_linear(Builder& builder, const Node& node);
void build_linear(Builder& builder, const Node& node);
void infer_matmul(Builder& builder, const Node& node);
void build_matmul(Builder& builder, const Node& node);

// Views.cpp
void infer_view(Builder& builder, const Node& node);
void build_view(Builder& builder, const Node& node);
void infer_split(Builder& builder, const Node& node);
void build_split(Builder& builder, const Node& node);

// Pointwise.cpp
void infer_same(Builder& builder, const Node& node);
void build_eltwise(Builder& builder, const Node& node);
void infer_binary(Builder& builder, const Node& node);
void build_binary(Builder& builder, const Node& node);
void infer_prelu(Builder& builder, const Node& node);
void build_prelu(Builder& builder, const Node& node);
void infer_to(Builder& builder, const Node& node);
void build_to(Builder& builder, const Node& node);

// Reduction.cpp: softmax, norms, pooling, means
void build_softmax(Builder& builder, const Node& node);
void infer_layer_norm(Builder& builder, const Node& node);
void build_layer_norm(Builder& builder, const Node& node);
void infer_pool(Builder& builder, const Node& node);
void build_pool(Builder& builder, const Node& node);
void infer_adaptive_pool(Builder& builder, const Node& node);
void build_adaptive_pool(Builder& builder, const Node& node);
void infer_mean(Builder& builder, const Node& node);
void build_mean(Builder& builder, const Node& node);

// Select.cpp
void infer_nonzero(Builder& builder, const Node& node);
void build_nonzero(Builder& builder, const Node& node);
void infer_where(Builder& builder, const Node& node);
void build_where(Builder& builder, const Node& node);

// ChannelNorm.cpp
void infer_batch_norm(Builder& builder, const Node& node);
void build_batch_norm(Builder& builder, const Node& node);
void infer_group_norm(Builder& builder, const Node& node);
void build_group_norm(Builder& builder, const Node& node);

// Resampling.cpp
void infer_resample(Builder& builder, const Node& node);
void build_resample(Builder& builder, const Node& node);

// Attention.cpp
void infer_attention(Builder& builder, const Node& node);
void build_attention(Builder& builder, const Node& node);

// Concatenation.cpp
void infer_cat(Builder& builder, const Node& node);
void infer_stack(Builder& builder, const Node& node);
void build_cat(Builder& builder, const Node& node);

// Padding.cpp
void infer_pad(Builder& builder, const Node& node);
void build_pad(Builder& builder, const Node& node);
void infer_roll(Builder& builder, const Node& node);
void build_roll(Builder& builder, const Node& node);

// Embedding.cpp
void infer_embedding(Builder& builder, const Node& node);
void build_embedding(Builder& builder, const Node& node);
void infer_embedding_bags(Builder& builder, const Node& node);
void build_embedding_bags(Builder& builder, const Node& node);

// Pairs.cpp
void infer_gather_pairs(Builder& builder, const Node& node);
void build_gather_pairs(Builder& builder, const Node& node);
void infer_pairwise_dot(Builder& builder, const Node& node);
void build_pairwise_dot(Builder& builder, const Node& node);

// Numbers.cpp
void infer_number(Builder& builder, const Node& node);
void infer_size(Builder& builder, const Node& node);
void infer_numel(Builder& builder, const Node& node);
void infer_power(Builder& builder, const Node& node);
void build_power(Builder& builder, const Node& node);
void build_nothing(Builder& builder, const Node& node);

// Strides of an operand over the result's dimensions; 0 where it repeats.
Dims broadcast_strides(
    const Dims& sizes,
    const Dims& strides,
    const Dims& result);

// A value operand; throws Refused when it is something else.
inline int64_t tensor(const Node& node, size_t index) {
  if (index >= node.inputs.size() ||
      node.inputs[index].kind != Operand::Kind::value) {
    refuse("operator " + node.op + " without operand " + std::to_string(index));
  }
  return node.inputs[index].index;
}

// Whether the operator has this operand: it is there, and not `none`.
inline bool has(const Node& node, size_t index) {
  return index < node.inputs.size() && node.inputs[index];
}

// What torch says of an index that is none of its table's.
inline constexpr const char* kOutOfRange = "index out of range in self";

// What a window may have as its stride, dilation or padding, or elements in
// all: what ZenDNN computes with these then fits in 32 bits.
inline constexpr int64_t kLargestArgument = 1 << 24;

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
