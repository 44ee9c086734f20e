// Functions of single elements: eltwise, binary, where.
#include <torch/csrc/zendnn/plan/build/Kernel.h>
#include <torch/csrc/zendnn/plan/build/PostOps.h>
#include <torch/csrc/zendnn/plan/operators/Pointwise.h>

#include <ATen/native/zendnn/Dtypes.h>
#include <ATen/native/zendnn/kernels/elementwise.h>
#include <adeep/abstract_types.hpp>

#include <algorithm>
#include <array>
#include <bit>

namespace at::native::zendnn::plan {
namespace {

// Places the result over an operand of its size that nobody needs any more, or
// anew, in the layout that such an operand has.
void place_binary(Builder& builder, const Node& node) {
  const auto output = node.output();
  const auto& out_sizes = builder.values().sizes(output);
  std::vector<int64_t> alike; // operands of the result's size
  for (const auto value : {tensor(node, 0), tensor(node, 1)}) {
    if (builder.values().sizes(value) == out_sizes) {
      alike.push_back(value);
    }
  }
  for (const auto value : alike) {
    const auto place = builder.place(value);
    if (place.blocked) {
      if (!builder.reuse(output, value, place)) {
        builder.make(output, *place.blocked);
      }
      return;
    }
  }
  const auto row_major = builder.values().row_major(output);
  auto layout = row_major;
  for (const auto value : alike) {
    const auto place = builder.strided(value);
    const auto here = layout_after(builder, output, place);
    if (is_dense(out_sizes, place.strides) &&
        builder.describe(output, place) == here &&
        builder.reuse(output, value, place)) {
      return;
    }
    layout = layout == row_major ? here : layout;
  }
  if (const auto slice = builder.target(output); slice && !slice->blocked) {
    builder.set_place(output, *slice);
  } else {
    builder.make(output, layout);
  }
}

// Describes a vector with one number per channel as ZenDNN's fast code for the
// layout `of` requires: in whole blocks if that is blocked.
memory::desc channel_vector(
    int64_t channels,
    memory::data_type type,
    const memory::desc& of) {
  const auto rank = of.get_dims().size();
  Dims sizes(rank, 1), strides(rank, 1);
  if (channels > 1) {
    sizes[1] = channels;
    strides[0] = channels;
  }
  return channels > 1 && channels % channel_block() == 0 &&
                 of.get_inner_blks() == Dims{channel_block()}
             ? memory::desc(sizes, type, blocked_tag(rank))
             : memory::desc(sizes, type, strides);
}

// How a primitive sees an operand, and where that is.
using Described = std::pair<memory::desc, Ref>;

// Adds a primitive of ZenDNN, for a blocked result.
void add_binary_primitive(
    Builder& builder,
    const Node& node,
    kernels::Binary algorithm,
    const Described& left,
    const Described& right,
    const Place& to,
    const PostOp* function) {
  auto attributes = user_scratchpad();
  if (function != nullptr) {
    const auto as = function_of(*function);
    ::zendnn::post_ops chain;
    chain.append_eltwise(as.kind, as.alpha, as.beta);
    attributes.set_post_ops(chain);
  }
  const ::zendnn::binary::primitive_desc desc(
      adeep::engine::cpu_engine(),
      row_of(algorithm).kind,
      left.first,
      right.first,
      *to.blocked,
      attributes);
  builder.add_primitive(
      node,
      ::zendnn::binary(desc),
      std::string("binary ") + desc.impl_info_str(),
      {{ZENDNN_ARG_SRC_0, left.first, left.second},
       {ZENDNN_ARG_SRC_1, right.first, right.second},
       {ZENDNN_ARG_DST, *to.blocked, to.ref}});
}

// An operand for a blocked place of the result.
Described see_in_blocks(
    Builder& builder,
    int64_t value,
    const Dims& result,
    const Place& to) {
  if (builder.values().sizes(value) == result) {
    return {*to.blocked, builder.in_layout(value, *to.blocked)};
  }
  const auto seen = see_broadcast(builder, value, result);
  const auto vector =
      channel_vector(result[1], to.blocked->get_data_type(), *to.blocked);
  // The channels lie one after the other, as those of the vector do.
  const bool same = seen.desc.get_dims() == vector.get_dims() &&
                    seen.desc.get_strides()[1] == 1;
  return {same ? vector : seen.desc, seen.read()};
}

// A place of the value, for steps that go through elements.
Pointwise::At at(Builder& builder, int64_t value, const Place& place) {
  return {place.ref, place.strides, builder.values().spec(value)};
}

// The function as an instruction that makes `out` of `from`.
kernels::Instruction apply(
    const PostOp& function,
    c10::ScalarType dtype,
    uint8_t from,
    uint8_t out) {
  return {
      .kind = kernels::Instruction::Kind::function,
      .function = function.function,
      .alpha = function.alpha,
      .beta = function.beta,
      .dtype = kernel_type(dtype),
      .a = from,
      .out = out};
}

// Adds our kernel, for a result with strides.
void add_binary_kernel(
    Builder& builder,
    const Node& node,
    kernels::Binary algorithm,
    const Pointwise::At& a,
    const Pointwise::At& b,
    int64_t result,
    const Place& to,
    const PostOp* function) {
  const auto dtype = builder.values().dtype(result);
  Pointwise chain{
      .sizes = builder.values().sizes(result),
      .places = {at(builder, result, to), a, b},
      .instructions = {
          {.kind = kernels::Instruction::Kind::combination,
           .combination = algorithm,
           .dtype = kernel_type(dtype),
           .a = 1,
           .b = 2,
           .out = 0}}};
  if (function != nullptr) {
    chain.instructions.push_back(apply(*function, dtype, 0, 0));
  }
  builder.add_pointwise(
      node, zendnn_binary, "binary " + name_of(algorithm), std::move(chain));
}

} // namespace

void Pointwise::run(const Frame& frame) const {
  std::array<kernels::PointwisePlace, kernels::kMostPlaces> arguments;
  for (size_t i = 0; i < places.size(); ++i) {
    const auto& place = places[i];
    arguments[i] = {
        .data = place.is_kept_in_memory ? frame.at(place.ref) : nullptr,
        .strides = place.strides.data(),
        .itemsize = item_size(place.spec.dtype)};
  }
  kernels::pointwise(
      {.instructions = instructions.data(),
       .count = std::ssize(instructions),
       .places = arguments.data(),
       .num_places = std::ssize(places),
       .sizes = sizes.data(),
       .ndim = std::ssize(sizes)});
}

Step pointwise_step(Pointwise chain) {
  auto shared = std::make_shared<const Pointwise>(std::move(chain));
  return {
      .kernel = [shared](const Frame& frame) { shared->run(frame); },
      .pointwise = shared};
}

Dims broadcast_strides(
    const Dims& sizes,
    const Dims& strides,
    const Dims& result) {
  Dims wide(result.size(), 0);
  const auto extra = result.size() - sizes.size();
  for (size_t i = 0; i < sizes.size(); ++i) {
    wide[extra + i] = sizes[i] == 1 ? 0 : strides[i];
  }
  return wide;
}

Place place_number(
    Builder& builder,
    c10::ScalarType dtype,
    float number,
    size_t rank) {
  const auto key = std::string(c10::toString(dtype)) + " number " +
                   std::to_string(std::bit_cast<uint32_t>(number));
  const auto write = [=](void* to) { write_number(dtype, number, to); };
  return {
      .ref = builder.prepared(key, item_size(dtype), write),
      .strides = Dims(rank, 0)};
}

void infer_eltwise(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  type_of(values.dtype(input));
  values.set_type(node.output(), values.sizes(input), values.dtype(input));
}

void add_eltwise(
    Builder& builder,
    const Node& node,
    int64_t value,
    const PostOp& function,
    const Place& from,
    const Place& to) {
  if (to.blocked) {
    const auto as = function_of(function);
    const ::zendnn::eltwise_forward::primitive_desc desc(
        adeep::engine::cpu_engine(),
        ::zendnn::prop_kind::forward_inference,
        as.kind,
        *to.blocked,
        *to.blocked,
        as.alpha,
        as.beta,
        user_scratchpad());
    builder.add_primitive(
        node,
        ::zendnn::eltwise_forward(desc),
        std::string("eltwise ") + desc.impl_info_str(),
        {{ZENDNN_ARG_SRC, *to.blocked, from.ref},
         {ZENDNN_ARG_DST, *to.blocked, to.ref}});
    return;
  }
  builder.add_pointwise(
      node,
      zendnn_eltwise,
      "eltwise " + name_of(function.function),
      {.sizes = builder.values().sizes(value),
       .places = {at(builder, value, to), at(builder, value, from)},
       .instructions = {apply(function, builder.values().dtype(value), 1, 0)}});
}

void add_binary(
    Builder& builder,
    const Node& node,
    kernels::Binary algorithm,
    int64_t a,
    int64_t b,
    int64_t result,
    const PostOp* function) {
  const auto to = builder.place(result);
  const auto& sizes = builder.values().sizes(result);
  if (to.blocked) {
    const auto left = see_in_blocks(builder, a, sizes, to),
               right = see_in_blocks(builder, b, sizes, to);
    add_binary_primitive(builder, node, algorithm, left, right, to, function);
    return;
  }
  const auto left = at(builder, a, broadcast_place(builder, a, sizes)),
             right = at(builder, b, broadcast_place(builder, b, sizes));
  add_binary_kernel(
      builder, node, algorithm, left, right, result, to, function);
}

void add_to_channels(
    Builder& builder,
    const Node& node,
    int64_t vector,
    int64_t result) {
  const auto to = builder.place(result);
  const auto& sizes = builder.values().sizes(result);
  auto from = builder.dense(vector);
  if (to.blocked) {
    const auto desc =
        channel_vector(sizes[1], to.blocked->get_data_type(), *to.blocked);
    add_binary_primitive(
        builder,
        node,
        kernels::Binary::add,
        {*to.blocked, to.ref},
        {desc, from.ref},
        to,
        nullptr);
    return;
  }
  from.strides = Dims(sizes.size(), 0);
  from.strides[1] = 1;
  add_binary_kernel(
      builder,
      node,
      kernels::Binary::add,
      at(builder, result, to),
      at(builder, vector, from),
      result,
      to,
      nullptr);
}

void build_eltwise(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  auto from = builder.place(input);
  if (from.blocked && has_primitive(node.as<attr::eltwise>().algorithm)) {
    from = builder.solid_blocks(input);
  } else if (
      from.blocked || !is_dense(builder.values().sizes(input), from.strides)) {
    from = builder.dense(input);
  }
  auto to = from;
  if (!builder.reuse(output, input, from)) {
    if (const auto slice = builder.target(output);
        slice && !slice->blocked && !from.blocked) {
      to = *slice;
      builder.set_place(output, to);
    } else {
      to = builder.make(output, builder.describe(input, from));
    }
  }
  const PostOp function{
      .function = node.as<attr::eltwise>().algorithm,
      .alpha = static_cast<float>(node.as<attr::eltwise>().alpha),
      .beta = static_cast<float>(node.as<attr::eltwise>().beta)};
  add_eltwise(builder, node, output, function, from, to);
}

void infer_binary(Values& values, const Node& node) {
  const auto a = tensor(node, 0), b = tensor(node, 1);
  if (values.dtype(a) != values.dtype(b)) {
    refuse("tensors of different dtypes");
  }
  type_of(values.dtype(a));
  values.set_type(
      node.output(),
      broadcast(
          values.sizes(a),
          values.sizes(b),
          first_if(node.as<attr::binary>().in_place)),
      values.dtype(a));
}

void build_binary(Builder& builder, const Node& node) {
  place_binary(builder, node);
  const bool more = !node.post.empty() && !node.post[0].is_binary();
  add_binary(
      builder,
      node,
      node.as<attr::binary>().algorithm,
      tensor(node, 0),
      tensor(node, 1),
      node.output(),
      more ? node.post.data() : nullptr);
  apply_rest(builder, node, more ? 1 : 0);
}

void infer_prelu(Values& values, const Node& node) {
  infer_eltwise(values, node);
  const auto slopes = count(values.sizes(tensor(node, 1)));
  const auto& sizes = values.sizes(tensor(node, 0));
  if (values.dtype(tensor(node, 1)) != values.dtype(tensor(node, 0)) ||
      sizes.empty() || sizes.size() > 5 ||
      (slopes != 1 && (sizes.size() < 2 || slopes != sizes[1]))) {
    refuse("a PReLU whose slopes are not one for each channel");
  }
}

// A place in which the primitive finds the channels. It compares three strides
// of a dense tensor, and misreads one whose last dimensions lie outside of the
// channels.
Place place_for_prelu(Builder& builder, int64_t input) {
  const auto known = builder.place(input);
  if (known.blocked) {
    return known;
  }
  const auto from = builder.addressable(input);
  const auto& sizes = builder.values().sizes(input);
  const auto strides = meaningful_strides(sizes, from.strides);
  const bool is_usual =
      is_row_major(sizes, strides) || !is_dense(sizes, strides) ||
      strides == meaningful_strides(sizes, channels_last_strides(sizes));
  return is_usual ? from : builder.dense(input);
}

void build_prelu(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), slope = tensor(node, 1),
             output = node.output();
  const auto from = place_for_prelu(builder, input);
  const auto layout = builder.describe(input, from);
  const auto slope_layout = channel_vector(
      count(builder.values().sizes(slope)),
      type_of(builder.values().dtype(slope)),
      layout);
  const ::zendnn::prelu_forward::primitive_desc desc(
      adeep::engine::cpu_engine(),
      ::zendnn::prop_kind::forward_inference,
      layout,
      slope_layout,
      layout,
      user_scratchpad());
  const auto to = builder.make(output, layout);
  builder.add_primitive(
      node,
      ::zendnn::prelu_forward(desc),
      std::string("prelu ") + desc.impl_info_str(),
      {{ZENDNN_ARG_SRC, layout, from.ref},
       {ZENDNN_ARG_WEIGHTS, slope_layout, builder.dense(slope).ref},
       {ZENDNN_ARG_DST, layout, to.ref}});
}

void infer_where(Values& values, const Node& node) {
  if (values.dtype(tensor(node, 0)) != c10::ScalarType::Bool) {
    refuse("a choice whose condition is not a tensor of bool");
  }
  auto out = values.sizes(tensor(node, 0));
  auto dtype = c10::ScalarType::Undefined;
  for (const size_t i : {1, 2}) {
    if (!has(node, i)) {
      continue;
    }
    const auto here = values.dtype(tensor(node, i));
    if (dtype != c10::ScalarType::Undefined && dtype != here) {
      refuse("tensors of different dtypes");
    }
    dtype = here;
    out = broadcast(out, values.sizes(tensor(node, i)));
  }
  rounded(dtype, node.as<attr::where>().value);
  values.set_type(node.output(), out, dtype);
}

void build_where(Builder& builder, const Node& node) {
  const auto output = node.output();
  const auto& sizes = builder.values().sizes(output);
  const auto operand = [&](size_t index) -> Pointwise::At {
    if (has(node, index)) {
      const auto value = tensor(node, index);
      return at(builder, value, broadcast_place(builder, value, sizes));
    }
    const auto number = static_cast<float>(node.as<attr::where>().value);
    const auto dtype = builder.values().dtype(output);
    const auto place = place_number(builder, dtype, number, sizes.size());
    return {place.ref, place.strides, {.dtype = dtype}};
  };
  const auto condition = operand(0), x = operand(1), y = operand(2);
  const auto to = at(builder, output, builder.make_dense(output));
  builder.add_pointwise(
      node,
      row_of(node.op).kind,
      "where",
      {.sizes = sizes,
       .places = {to, condition, x, y},
       .instructions = {
           {.kind = kernels::Instruction::Kind::choice,
            .dtype = kernel_type(builder.values().dtype(output)),
            .a = 1,
            .b = 2,
            .c = 3,
            .out = 0}}});
}

} // namespace at::native::zendnn::plan
