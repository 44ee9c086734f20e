#include <torch/csrc/zendnn/plan/PostOps.h>

#include <adeep/abstract_types.hpp>

#include <limits>

namespace at::native::zendnn::plan {
namespace {

using ::zendnn::algorithm;

struct Eltwise {
  algorithm kind;
  float alpha, beta;
};

// ZenDNN's names and parameters for the description's eltwise algorithms.
Eltwise eltwise(const PostOp& post) {
  struct Row {
    algorithm kind;
    bool own_parameters;
    float alpha, beta;
  };
  static const std::unordered_map<std::string, Row> table{
      {"relu", {algorithm::eltwise_relu, false, 0, 0}},
      {"leaky_relu", {algorithm::eltwise_relu, true, 0, 0}},
      {"clip", {algorithm::eltwise_clip, true, 0, 0}},
      {"sigmoid", {algorithm::eltwise_logistic, false, 0, 0}},
      {"tanh", {algorithm::eltwise_tanh, false, 0, 0}},
      {"gelu", {algorithm::eltwise_gelu_erf, false, 0, 0}},
      {"gelu_tanh", {algorithm::eltwise_gelu_tanh, false, 0, 0}},
      {"silu", {algorithm::eltwise_swish, false, 1, 0}},
      {"hardswish", {algorithm::eltwise_hardswish, false, 1.F / 6, 0.5F}},
      {"hardsigmoid", {algorithm::eltwise_hardsigmoid, false, 1.F / 6, 0.5F}},
      {"elu", {algorithm::eltwise_elu, true, 0, 0}},
      {"mish", {algorithm::eltwise_mish, false, 0, 0}},
      {"exp", {algorithm::eltwise_exp, false, 0, 0}},
      {"abs", {algorithm::eltwise_abs, false, 0, 0}},
      {"sqrt", {algorithm::eltwise_sqrt, false, 0, 0}},
      {"square", {algorithm::eltwise_square, false, 0, 0}},
      {"log", {algorithm::eltwise_log, false, 0, 0}},
      {"linear", {algorithm::eltwise_linear, true, 0, 0}},
      {"round", {algorithm::eltwise_round, false, 0, 0}},
  };
  const auto found = table.find(post.algorithm);
  if (found == table.end()) {
    refuse("the function '" + post.algorithm + "'");
  }
  const auto& row = found->second;
  auto alpha = row.own_parameters ? post.alpha : row.alpha;
  auto beta = row.own_parameters ? post.beta : row.beta;
  if (row.kind == algorithm::eltwise_clip) {
    // Bounds that are not there, as numbers that a kernel can compare with.
    constexpr auto most = std::numeric_limits<float>::max();
    alpha = std::max(alpha, -most);
    beta = std::min(beta, most);
  }
  return {row.kind, alpha, beta};
}

bool same_size(const Builder& builder, int64_t a, int64_t b) {
  return builder.sizes(a) == builder.sizes(b) &&
         builder.dtype(a) == builder.dtype(b);
}

// The first post-op that could accumulate, or -1.
int64_t accumulating(const Builder& builder, const Node& node) {
  for (size_t i = 0; i < node.post.size(); ++i) {
    const auto& post = node.post[i];
    if (!post.is_binary() || post.algorithm != "add") {
      continue;
    }
    const auto& operand = node.inputs[post.operand];
    int64_t reads = 0;
    for (const auto& other : node.inputs) {
      reads +=
          other.kind == Operand::Kind::value && other.index == operand.index;
    }
    if (reads == 1 && same_size(builder, operand.index, node.output()) &&
        builder.dies(operand.index)) {
      return static_cast<int64_t>(i);
    }
  }
  return -1;
}

} // namespace

memory::desc widened(const memory::desc& narrow, const Dims& result) {
  const auto sizes = narrow.get_dims();
  if (sizes.size() == result.size()) {
    return narrow;
  }
  const auto strides = narrow.get_strides();
  const auto extra = result.size() - sizes.size();
  Dims wide_sizes(extra, 1), wide_strides(extra, 1);
  wide_sizes.insert(wide_sizes.end(), sizes.begin(), sizes.end());
  wide_strides.insert(wide_strides.end(), strides.begin(), strides.end());
  int64_t reach = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    reach = std::max(reach, sizes[i] * strides[i]);
  }
  std::fill_n(wide_strides.begin(), extra, reach);
  return {wide_sizes, narrow.get_data_type(), wide_strides};
}

algorithm eltwise_algorithm(const std::string& name) {
  return eltwise({.algorithm = name}).kind;
}

algorithm binary_algorithm(const std::string& name) {
  static const std::unordered_map<std::string, algorithm> table{
      {"add", algorithm::binary_add},
      {"sub", algorithm::binary_sub},
      {"mul", algorithm::binary_mul},
      {"div", algorithm::binary_div},
      {"max", algorithm::binary_max},
      {"min", algorithm::binary_min},
  };
  const auto found = table.find(name);
  if (found == table.end()) {
    refuse("the function '" + name + "'");
  }
  return found->second;
}

bool can_accumulate(const Builder& builder, const Node& node) {
  return accumulating(builder, node) >= 0;
}

void check_post_ops(const Builder& builder, const Node& node) {
  const auto& result = builder.sizes(node.output());
  for (const auto& post : node.post) {
    if (!post.is_binary()) {
      eltwise(post);
      continue;
    }
    binary_algorithm(post.algorithm);
    const auto& operand = node.inputs[post.operand];
    if (operand.kind != Operand::Kind::value) {
      refuse("a post-op with a number");
    }
    const auto& sizes = builder.sizes(operand.index);
    if (builder.dtype(operand.index) != builder.dtype(node.output())) {
      refuse("tensors of different dtypes");
    }
    if (sizes.size() > result.size()) {
      refuse("an operand larger than the result it is added to");
    }
    const auto extra = result.size() - sizes.size();
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] != 1 && sizes[i] != result[extra + i]) {
        refuse("an operand larger than the result it is added to");
      }
    }
  }
}

std::optional<std::pair<memory::desc, Ref>>
see_broadcast(Builder& builder, int64_t operand, const Dims& result) {
  const auto known = builder.addressable(operand);
  if (builder.sizes(operand).empty()) { // a single number
    const Dims ones(result.size(), 1);
    return std::pair{
        memory::desc(ones, type_of(builder.dtype(operand)), ones), known.ref};
  }
  return std::pair{
      widened(builder.describe(operand, known), result), known.ref};
}

Attached
attach(Builder& builder, const Node& node, Addition addition, const See& see) {
  Attached attached;
  attached.attributes.set_scratchpad_mode(::zendnn::scratchpad_mode::user);
  if (addition == Addition::none) {
    return attached;
  }
  const auto accumulate = addition == Addition::accumulate
                              ? accumulating(builder, node)
                              : int64_t{-1};
  ::zendnn::post_ops chain;
  for (size_t i = 0; i < node.post.size(); ++i) {
    const auto& post = node.post[i];
    if (!post.is_binary()) {
      const auto [kind, alpha, beta] = eltwise(post);
      chain.append_eltwise(kind, alpha, beta);
      continue;
    }
    const auto operand = node.inputs[post.operand].index;
    if (static_cast<int64_t>(i) == accumulate) {
      attached.accumulator = builder.place(operand);
      chain.append_sum(1.F);
      continue;
    }
    const auto seen = see(operand);
    if (!seen) {
      break;
    }
    const auto& [desc, ref] = *seen;
    chain.append_binary(binary_algorithm(post.algorithm), desc);
    attached.arguments.push_back(
        {ZENDNN_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) |
             ZENDNN_ARG_SRC_1,
         desc,
         ref});
  }
  attached.taken = static_cast<size_t>(chain.len());
  attached.attributes.set_post_ops(chain);
  return attached;
}

void apply_rest(Builder& builder, const Node& node, size_t taken) {
  const auto value = node.output();
  const auto& engine = adeep::engine::cpu_engine();
  for (auto i = taken; i < node.post.size(); ++i) {
    const auto& post = node.post[i];
    const auto where = builder.place(value);
    const auto desc = builder.describe(value, where);
    ::zendnn::primitive_attr attributes;
    if (!post.is_binary()) {
      const auto [kind, alpha, beta] = eltwise(post);
      const ::zendnn::eltwise_forward::primitive_desc made(
          engine,
          ::zendnn::prop_kind::forward_inference,
          kind,
          desc,
          desc,
          alpha,
          beta,
          attributes);
      builder.add_primitive(
          node,
          ::zendnn::eltwise_forward(made),
          std::string("eltwise ") + made.impl_info_str(),
          {{ZENDNN_ARG_SRC, desc, where.ref},
           {ZENDNN_ARG_DST, desc, where.ref}});
      continue;
    }
    const auto operand = node.inputs[post.operand].index;
    memory::desc other;
    Ref ref;
    if (builder.sizes(operand) == builder.sizes(value)) {
      other = desc;
      ref = builder.in_layout(operand, desc);
    } else {
      std::tie(other, ref) =
          *see_broadcast(builder, operand, builder.sizes(value));
    }
    const ::zendnn::binary::primitive_desc made(
        engine,
        binary_algorithm(post.algorithm),
        desc,
        other,
        desc,
        attributes);
    builder.add_primitive(
        node,
        ::zendnn::binary(made),
        std::string("binary ") + made.impl_info_str(),
        {{ZENDNN_ARG_SRC_0, desc, where.ref},
         {ZENDNN_ARG_SRC_1, other, ref},
         {ZENDNN_ARG_DST, desc, where.ref}});
  }
}

std::string post_op_key(const Builder& builder, const Node& node) {
  std::string key;
  for (const auto& post : node.post) {
    key += ' ' + post.algorithm;
    if (post.is_binary()) {
      for (const auto size : builder.sizes(node.inputs[post.operand].index)) {
        key += ',' + std::to_string(size);
      }
    }
  }
  return key;
}

} // namespace at::native::zendnn::plan
