// Functions of single elements: eltwise, binary, conversions.
#include <torch/csrc/zendnn/plan/Operators.h>
#include <torch/csrc/zendnn/plan/PostOps.h>

#include <ATen/native/zendnn/kernels/elementwise.h>
#include <ATen/native/zendnn/kernels/memory.h>
#include <adeep/abstract_types.hpp>

namespace at::native::zendnn::plan {
namespace {

kernels::Eltwise eltwise_kernel(const std::string& name) {
  using kernels::Eltwise;
  static const std::unordered_map<std::string, Eltwise> table{
      {"relu", Eltwise::relu},
      {"leaky_relu", Eltwise::leaky_relu},
      {"clip", Eltwise::clip},
      {"sigmoid", Eltwise::sigmoid},
      {"tanh", Eltwise::tanh},
      {"gelu", Eltwise::gelu},
      {"gelu_tanh", Eltwise::gelu_tanh},
      {"silu", Eltwise::silu},
      {"hardswish", Eltwise::hardswish},
      {"hardsigmoid", Eltwise::hardsigmoid},
      {"elu", Eltwise::elu},
      {"mish", Eltwise::mish},
      {"exp", Eltwise::exp},
      {"abs", Eltwise::abs},
      {"sqrt", Eltwise::sqrt},
      {"square", Eltwise::square},
      {"log", Eltwise::log},
      {"linear", Eltwise::linear},
      {"round", Eltwise::round},
  };
  const auto found = table.find(name);
  if (found == table.end()) {
    refuse("the function '" + name + "'");
  }
  return found->second;
}

kernels::Binary binary_kernel(const std::string& name) {
  using kernels::Binary;
  static const std::unordered_map<std::string, Binary> table{
      {"add", Binary::add},
      {"sub", Binary::sub},
      {"mul", Binary::mul},
      {"div", Binary::div},
      {"max", Binary::max},
      {"min", Binary::min},
  };
  const auto found = table.find(name);
  if (found == table.end()) {
    refuse("the function '" + name + "'");
  }
  return found->second;
}

// Strides of an operand over the result's dimensions; 0 where it repeats.
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

// Whether the place holds the value's elements and nothing else between them,
// so that it can be gone through in memory order.
bool is_solid(const Dims& sizes, const Place& place) {
  return !place.blocked && !overlaps(sizes, place.strides) &&
         span(sizes, place.strides) == count(sizes);
}

template <typename From>
void to_float(const void* src, void* dst, int64_t size) {
  const auto* from = static_cast<const From*>(src);
  auto* to = static_cast<float*>(dst);
  for (int64_t i = 0; i < size; ++i) {
    to[i] = static_cast<float>(from[i]);
  }
}

using Convert = void (*)(const void*, void*, int64_t);

// How other types become float32; null for those that do not.
Convert conversion(c10::ScalarType from) {
  switch (from) {
    case c10::ScalarType::Long:
      return to_float<int64_t>;
    case c10::ScalarType::Int:
      return to_float<int32_t>;
    case c10::ScalarType::Bool:
    case c10::ScalarType::Byte:
      return to_float<uint8_t>;
    case c10::ScalarType::Double:
      return to_float<double>;
    default:
      return nullptr;
  }
}

void build_blocked_eltwise(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto from = builder.place(input);
  if (const auto slice = builder.target(output);
      !slice && builder.dies(input)) {
    builder.set_place(output, from);
  } else {
    builder.make(output, from.desc);
    if (builder.place(output).ref.buffer != from.ref.buffer) {
      // Start from a copy; the function then runs in place.
      builder.copy(input, from, builder.place(output));
    }
  }
  Node alone = node;
  alone.post = {
      {node.word("algorithm"),
       static_cast<float>(node.real("alpha", 0)),
       static_cast<float>(node.real("beta", 0))}};
  apply_rest(builder, alone, 0);
}

} // namespace

void infer_same(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0);
  type_of(builder.dtype(input));
  builder.set_type(node.output(), builder.sizes(input), builder.dtype(input));
}

void build_eltwise(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  if (builder.place(input).blocked) {
    return build_blocked_eltwise(builder, node);
  }
  auto from = builder.strided(input);
  if (!is_solid(builder.sizes(input), from)) {
    from = builder.dense(input);
  }
  const auto kind = eltwise_kernel(node.word("algorithm"));
  Place to;
  if (builder.dies(input) && !builder.target(output) &&
      !builder.is_result(output)) {
    to = from;
    builder.set_place(output, to);
  } else if (is_row_major(builder.sizes(input), from.strides)) {
    to = builder.make_dense(output);
  } else {
    to = builder.make(
        output,
        memory::desc(
            builder.sizes(output),
            type_of(builder.dtype(output)),
            from.strides));
  }
  builder.add_kernel(
      node,
      "eltwise " + node.word("algorithm"),
      {from.ref, to.ref},
      [from = from.ref,
       to = to.ref,
       kind,
       alpha = static_cast<float>(node.real("alpha", 0)),
       beta = static_cast<float>(node.real("beta", 0)),
       size = count(builder.sizes(input)),
       dtype = kernel_type(builder.dtype(input))](const Frame& frame) {
        kernels::eltwise(
            {.algorithm = kind,
             .alpha = alpha,
             .beta = beta,
             .src = frame.at(from),
             .dst = frame.at(to),
             .size = size,
             .dtype = dtype});
      });
}

void infer_binary(Builder& builder, const Node& node) {
  const auto a = tensor(node, 0), b = tensor(node, 1);
  const auto &left = builder.sizes(a), &right = builder.sizes(b);
  if (builder.dtype(a) != builder.dtype(b)) {
    refuse("tensors of different dtypes");
  }
  type_of(builder.dtype(a));
  binary_kernel(node.word("algorithm"));
  Dims out(std::max(left.size(), right.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    const auto from_end = out.size() - i;
    const auto one = from_end > left.size() ? 1 : left[left.size() - from_end];
    const auto two =
        from_end > right.size() ? 1 : right[right.size() - from_end];
    if (one != two && one != 1 && two != 1) {
      refuse("tensors whose sizes do not broadcast");
    }
    out[i] = one == 1 ? two : one;
  }
  builder.set_type(node.output(), out, builder.dtype(a));
  check_post_ops(builder, node);
}

void build_binary(Builder& builder, const Node& node) {
  const auto a = tensor(node, 0), b = tensor(node, 1), output = node.output();
  const auto& out_sizes = builder.sizes(output);
  const auto whole = [&](int64_t value) {
    return builder.sizes(value) == out_sizes;
  };
  // In ZenDNN's layouts, by ZenDNN.
  for (const auto& [one, two] : {std::pair{a, b}, std::pair{b, a}}) {
    const auto place = builder.place(one);
    if (!place.blocked || !whole(one)) {
      continue;
    }
    memory::desc other = place.desc;
    Ref other_ref;
    if (whole(two)) {
      other_ref = builder.in_layout(two, place.desc);
    } else {
      std::tie(other, other_ref) = *see_broadcast(builder, two, out_sizes);
    }
    Ref to;
    if (builder.dies(one) && !builder.target(output)) {
      builder.set_place(output, place);
      to = place.ref;
    } else {
      to = builder.make(output, place.desc).ref;
    }
    const bool swapped = one == b && a != b;
    const auto& first = swapped ? other : place.desc;
    const auto& second = swapped ? place.desc : other;
    try {
      const ::zendnn::binary::primitive_desc made(
          adeep::engine::cpu_engine(),
          binary_algorithm(node.word("algorithm")),
          first,
          second,
          place.desc);
      builder.add_primitive(
          node,
          ::zendnn::binary(made),
          std::string("binary ") + made.impl_info_str(),
          {{ZENDNN_ARG_SRC_0, first, swapped ? other_ref : place.ref},
           {ZENDNN_ARG_SRC_1, second, swapped ? place.ref : other_ref},
           {ZENDNN_ARG_DST, place.desc, to}});
    } catch (const ::zendnn::error&) {
      refuse("an elementwise operator that ZenDNN does not do");
    }
    return apply_rest(builder, node, 0);
  }
  const auto left = builder.strided(a), right = builder.strided(b);
  Place to;
  bool reused = false;
  if (!builder.target(output) && !builder.is_result(output)) {
    for (const auto& [value, place] :
         {std::pair{a, left}, std::pair{b, right}}) {
      if (!reused && whole(value) && builder.dies(value) &&
          is_row_major(out_sizes, place.strides) &&
          builder.place(value).ref.buffer == place.ref.buffer) {
        to = place;
        reused = true;
      }
    }
  }
  if (reused) {
    builder.set_place(output, to);
  } else if (const auto slice = builder.target(output);
             slice && !slice->blocked) {
    to = *slice;
    builder.set_place(output, to);
  } else {
    to = builder.make_dense(output);
  }
  const bool one_post = node.post.size() == 1 && !node.post[0].is_binary();
  builder.add_kernel(
      node,
      "binary " + node.word("algorithm"),
      {left.ref, right.ref, to.ref},
      [left = left.ref,
       right = right.ref,
       to = to.ref,
       left_strides =
           broadcast_strides(builder.sizes(a), left.strides, out_sizes),
       right_strides =
           broadcast_strides(builder.sizes(b), right.strides, out_sizes),
       to_strides = to.strides,
       sizes = out_sizes,
       kind = binary_kernel(node.word("algorithm")),
       dtype = kernel_type(builder.dtype(output)),
       post = one_post ? eltwise_kernel(node.post[0].algorithm)
                       : kernels::Eltwise::none,
       alpha = one_post ? node.post[0].alpha : 0.F,
       beta = one_post ? node.post[0].beta : 0.F](const Frame& frame) {
        kernels::binary(
            {.algorithm = kind,
             .a = frame.at(left),
             .a_strides = left_strides.data(),
             .b = frame.at(right),
             .b_strides = right_strides.data(),
             .out = frame.at(to),
             .out_strides = to_strides.data(),
             .sizes = sizes.data(),
             .ndim = static_cast<int64_t>(sizes.size()),
             .dtype = dtype,
             .post = post,
             .alpha = alpha,
             .beta = beta});
      });
  apply_rest(builder, node, one_post ? 1 : 0);
}

void infer_prelu(Builder& builder, const Node& node) {
  infer_same(builder, node);
  const auto slopes = count(builder.sizes(tensor(node, 1)));
  const auto& sizes = builder.sizes(tensor(node, 0));
  if (builder.dtype(tensor(node, 1)) != builder.dtype(tensor(node, 0)) ||
      sizes.empty() || sizes.size() > 5 ||
      (slopes != 1 && (sizes.size() < 2 || slopes != sizes[1]))) {
    refuse("a PReLU whose slopes are not one for each channel");
  }
}

void build_prelu(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), slope = tensor(node, 1),
             output = node.output();
  auto from = builder.place(input);
  if (!from.blocked) {
    from = builder.addressable(input);
  }
  const auto layout = builder.describe(input, from);
  const auto rank = builder.sizes(input).size();
  Dims sizes(rank, 1), strides(rank, 1);
  const auto slopes = count(builder.sizes(slope));
  if (slopes > 1) {
    sizes[1] = slopes;
    strides[0] = slopes;
  }
  const memory::desc slope_layout(
      sizes, type_of(builder.dtype(slope)), strides);
  const ::zendnn::prelu_forward::primitive_desc made(
      adeep::engine::cpu_engine(),
      ::zendnn::prop_kind::forward_inference,
      layout,
      slope_layout,
      layout);
  const auto to = builder.make(output, layout);
  builder.add_primitive(
      node,
      ::zendnn::prelu_forward(made),
      std::string("prelu ") + made.impl_info_str(),
      {{ZENDNN_ARG_SRC, layout, from.ref},
       {ZENDNN_ARG_WEIGHTS, slope_layout, builder.dense(slope).ref},
       {ZENDNN_ARG_DST, layout, to.ref}});
}

void infer_to(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0);
  const auto to = dtype_named(node.word("dtype"));
  const auto from = builder.dtype(input);
  if (node.integer("floating", 0) != 0 || conversion(from) == nullptr ||
      to != c10::ScalarType::Float) {
    type_of(from);
  }
  builder.set_type(node.output(), builder.sizes(input), to);
}

void build_to(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto from_type = builder.dtype(input), to_type = builder.dtype(output);
  if (from_type == to_type) {
    builder.set_place(output, builder.place(input));
    return;
  }
  const auto from = builder.dense(input);
  const auto to = builder.make_dense(output);
  const auto size = count(builder.sizes(input));
  if (const auto convert = conversion(from_type)) {
    builder.add_kernel(
        node,
        "convert",
        {from.ref, to.ref},
        [from = from.ref, to = to.ref, size, convert](const Frame& frame) {
          convert(frame.at(from), frame.at(to), size);
        });
    return;
  }
  builder.add_kernel(
      node,
      "convert",
      {from.ref, to.ref},
      [from = from.ref,
       to = to.ref,
       size,
       source = kernel_type(from_type),
       target = kernel_type(to_type)](const Frame& frame) {
        kernels::convert(
            {.src = frame.at(from),
             .dst = frame.at(to),
             .size = size,
             .from = source,
             .to = target});
      });
}

} // namespace at::native::zendnn::plan
