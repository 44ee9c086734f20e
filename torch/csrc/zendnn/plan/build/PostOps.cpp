#include <torch/csrc/zendnn/plan/build/PostOps.h>
#include <torch/csrc/zendnn/plan/describe/Operators.h>

namespace at::native::zendnn::plan {
namespace {

using ::zendnn::algorithm;

// Whether no two elements share the memory that the value has.
bool is_whole(const Builder& builder, int64_t value) {
  const auto& place = builder.place(value);
  return place.blocked ||
         !overlaps(builder.values().sizes(value), place.strides);
}

// The first post-op that can accumulate; null for none.
const PostOp* accumulating(const Builder& builder, const Node& node) {
  const auto output = node.output();
  for (const auto& post : node.post) {
    if (!post.is(kernels::Binary::add)) {
      continue;
    }
    const auto operand = node.inputs[post.operand].index;
    if (builder.values().sizes(operand) == builder.values().sizes(output) &&
        builder.values().dtype(operand) == builder.values().dtype(output) &&
        builder.dies(operand, builder.place(operand)) &&
        is_whole(builder, operand)) {
      return &post;
    }
  }
  return nullptr;
}

// Whether ZenDNN's post-op may make a number of a NaN: its instructions return
// their second operand where either is one.
bool loses_nan(kernels::Binary algorithm) {
  return algorithm == kernels::Binary::max || algorithm == kernels::Binary::min;
}

// The same tensor with leading dimensions of size one, as many dimensions as
// the result has.
memory::desc widened(const memory::desc& narrow, const Dims& result) {
  auto sizes = narrow.get_dims();
  sizes.insert(sizes.begin(), result.size() - sizes.size(), 1);
  return narrow.reshape(sizes);
}

} // namespace

bool has_primitive(kernels::Eltwise function) {
  return row_of(function).kind != ::zendnn::algorithm::undef;
}

Function function_of(const PostOp& post) {
  const auto& row = row_of(post.function);
  return {
      row.kind,
      row.own_parameters ? post.alpha : row.alpha,
      row.own_parameters ? post.beta : row.beta};
}

double magnification(const Node& node) {
  double whole = 1;
  for (const auto& post : node.post) {
    whole *= post.is_binary() ? row_of(post.combination).magnifies
             : post.is(kernels::Eltwise::affine)
                 ? std::max(1., std::abs(static_cast<double>(post.alpha)))
                 : row_of(post.function).magnifies;
  }
  return whole;
}

std::optional<Place> accumulator(Builder& builder, const Node& node) {
  const auto* post = accumulating(builder, node);
  if (post == nullptr || builder.is_result(node.output()) ||
      builder.target(node.output())) {
    return std::nullopt;
  }
  return builder.place(node.inputs[post->operand].index);
}

// ZenDNN's post-ops count an operand's elements without asking for its strides,
// so one with gaps between elements is copied.
Seen see_broadcast(Builder& builder, int64_t operand, const Dims& result) {
  const auto& place = builder.place(operand);
  const auto dtype = builder.values().dtype(operand);
  if (!place.blocked && !is_whole(builder, operand)) {
    // What repeats elements can be read as the smaller tensor that it repeats.
    auto sizes = builder.values().sizes(operand);
    for (size_t i = 0; i < sizes.size(); ++i) {
      sizes[i] = place.strides[i] == 0 ? 1 : sizes[i];
    }
    if (is_dense(sizes, place.strides)) {
      const memory::desc small(
          sizes, type_of(dtype), meaningful_strides(sizes, place.strides));
      return {widened(small, result), [ref = place.ref] { return ref; }};
    }
  }
  const auto read = [&builder, operand] {
    return builder.addressable(operand).ref;
  };
  if (builder.values().sizes(operand).empty()) { // a single number
    const Dims ones(result.size(), 1);
    return {{ones, type_of(dtype), ones}, read};
  }
  const auto layout = builder.addressable_layout(operand);
  if (is_dense(builder.values().sizes(operand), layout.get_strides())) {
    return {widened(layout, result), read};
  }
  return {
      widened(builder.values().row_major(operand), result),
      [&builder, operand] { return builder.dense(operand).ref; }};
}

std::vector<Step::Argument> Attached::read() const {
  auto arguments = operands;
  for (size_t i = 0; i < reads.size(); ++i) {
    arguments[i].ref = reads[i]();
  }
  return arguments;
}

Attached
attach(Builder& builder, const Node& node, Addition addition, const See& see) {
  Attached attached;
  attached.attributes = user_scratchpad();
  attached.addition = addition;
  if (addition == Addition::none) {
    return attached;
  }
  const auto* accumulated =
      addition == Addition::accumulate ? accumulating(builder, node) : nullptr;
  ::zendnn::post_ops chain;
  for (size_t i = 0; i < node.post.size(); ++i) {
    const auto& post = node.post[i];
    if (!post.is_binary()) {
      const auto function = function_of(post);
      chain.append_eltwise(function.kind, function.alpha, function.beta);
      continue;
    }
    if (addition == Addition::functions || loses_nan(post.combination)) {
      break;
    }
    const auto operand = node.inputs[post.operand].index;
    if (&post == accumulated) {
      attached.accumulates = true;
      chain.append_sum(1.F);
      continue;
    }
    const auto seen = see(operand);
    if (!seen) {
      break;
    }
    chain.append_binary(row_of(post.combination).kind, seen->desc);
    attached.operands.push_back(
        {ZENDNN_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) |
             ZENDNN_ARG_SRC_1,
         seen->desc,
         {}});
    attached.reads.push_back(seen->read);
  }
  attached.taken = static_cast<size_t>(chain.len());
  attached.attributes.set_post_ops(chain);
  return attached;
}

void apply_rest(Builder& builder, const Node& node, size_t taken) {
  const auto value = node.output();
  for (auto i = taken; i < node.post.size(); ++i) {
    const auto& post = node.post[i];
    if (!post.is_binary()) {
      const auto place = builder.place(value);
      add_eltwise(builder, node, value, post, place, place);
      continue;
    }
    const bool more = i + 1 < node.post.size() && !node.post[i + 1].is_binary();
    add_binary(
        builder,
        node,
        post.combination,
        value,
        node.inputs[post.operand].index,
        value,
        more ? &node.post[i + 1] : nullptr);
    i += more;
  }
}

void copy_to_slice(Builder& builder, int64_t value) {
  const auto slice = builder.target(value);
  const auto place = builder.place(value);
  if (slice && slice->ref.buffer != place.ref.buffer) {
    builder.copy(value, place, *slice);
    builder.set_place(value, *slice);
  }
}

} // namespace at::native::zendnn::plan
