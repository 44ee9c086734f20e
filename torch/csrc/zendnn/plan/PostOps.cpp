#include <torch/csrc/zendnn/plan/Operators.h>
#include <torch/csrc/zendnn/plan/PostOps.h>
#include <torch/csrc/zendnn/plan/Primitive.h>

namespace at::native::zendnn::plan {
namespace {

using ::zendnn::algorithm;

bool same_size(const Builder& builder, int64_t a, int64_t b) {
  return builder.sizes(a) == builder.sizes(b) &&
         builder.dtype(a) == builder.dtype(b);
}

// Whether no two elements share the memory that the value has.
bool is_whole(const Builder& builder, int64_t value) {
  const auto& place = builder.place(value);
  return place.blocked || !overlaps(builder.sizes(value), place.strides);
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
        builder.dies(operand.index, builder.place(operand.index)) &&
        is_whole(builder, operand.index)) {
      return static_cast<int64_t>(i);
    }
  }
  return -1;
}

// Whether ZenDNN's post-op may make a number of a NaN: its instructions return
// their second operand where either is one.
bool loses_nan(const std::string& algorithm) {
  return algorithm == "max" || algorithm == "min";
}

// A tensor seen with leading dimensions of size one, as many as the result has.
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

// The same as `magnification`, of one post-op.
double magnification_by(const PostOp& post) {
  if (post.is_binary()) {
    return combinations().at(post.algorithm).magnifies;
  }
  return post.algorithm == "affine"
             ? std::max(1., std::abs(static_cast<double>(post.alpha)))
             : functions().at(post.algorithm).magnifies;
}

} // namespace

bool has_primitive(const std::string& function) {
  return function_of({.algorithm = function}).kind !=
         ::zendnn::algorithm::undef;
}

Function function_of(const PostOp& post) {
  const auto& row = find_row(functions(), post.algorithm, "the function");
  return {
      row.kernel,
      row.kind,
      row.own_parameters ? post.alpha : row.alpha,
      row.own_parameters ? post.beta : row.beta};
}

double magnification(const Node& node) {
  double whole = 1;
  for (const auto& post : node.post) {
    whole *= magnification_by(post);
  }
  return whole;
}

const CombinationRow& combination_of(const std::string& name) {
  return find_row(combinations(), name, "the function");
}

bool can_accumulate(Builder& builder, const Node& node) {
  return !builder.target(node.output()) && accumulating(builder, node) >= 0;
}

// ZenDNN's post-ops count an operand's elements without asking for its strides,
// so one with gaps between elements is copied.
Seen see_broadcast(Builder& builder, int64_t operand, const Dims& result) {
  const auto& place = builder.place(operand);
  const auto dtype = builder.dtype(operand);
  if (!place.blocked && !is_whole(builder, operand)) {
    // What repeats elements can be read as the smaller tensor that it repeats.
    auto sizes = builder.sizes(operand);
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
  if (builder.sizes(operand).empty()) { // a single number
    const Dims ones(result.size(), 1);
    return {{ones, type_of(dtype), ones}, read};
  }
  const auto layout = builder.addressable_layout(operand);
  if (is_dense(builder.sizes(operand), layout.get_strides())) {
    return {widened(layout, result), read};
  }
  return {widened(builder.row_major(operand), result), [&builder, operand] {
            return builder.dense(operand).ref;
          }};
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
      const auto function = function_of(post);
      chain.append_eltwise(function.kind, function.alpha, function.beta);
      continue;
    }
    if (addition == Addition::functions || loses_nan(post.algorithm)) {
      break;
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
    chain.append_binary(combination_of(post.algorithm).kind, seen->desc);
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
        post.algorithm,
        value,
        node.inputs[post.operand].index,
        value,
        more ? &node.post[i + 1] : nullptr);
    i += more;
  }
}

void copy_to_slice(Builder& builder, int64_t value) {
  const auto slice = builder.target(value);
  const auto made = builder.place(value);
  if (slice && slice->ref.buffer != made.ref.buffer) {
    builder.copy(value, made, *slice);
    builder.set_place(value, *slice);
  }
}

std::string
post_op_key(const Node& node, const Attached& attached, bool about) {
  std::string key;
  for (size_t i = 0; i < attached.taken; ++i) {
    key += ' ' + node.post[i].algorithm;
  }
  for (const auto& operand : attached.operands) {
    key += ' ' + text_of(operand.desc, about);
  }
  return key;
}

} // namespace at::native::zendnn::plan
