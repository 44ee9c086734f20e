// Conversions of dtypes.
#include <torch/csrc/zendnn/plan/build/Kernel.h>
#include <torch/csrc/zendnn/plan/operators/Pointwise.h>

#include <ATen/native/zendnn/Dtypes.h>
#include <ATen/native/zendnn/kernels/elementwise.h>

#include <algorithm>

namespace at::native::zendnn::plan {
namespace {

struct ConvertArgs {
  const void* src = nullptr;
  void* dst = nullptr;
  int64_t size = 0;
};

using Convert = void (*)(const ConvertArgs&);

template <typename From, typename To>
void convert(const ConvertArgs& args) {
  const auto* from = static_cast<const From*>(args.src);
  std::transform(
      from, from + args.size, static_cast<To*>(args.dst), [](From x) {
        return static_cast<To>(x);
      });
}

// Null where there is none.
template <typename To>
Convert conversion(c10::ScalarType from) {
  switch (from) {
    case c10::ScalarType::Long:
      return convert<int64_t, To>;
    case c10::ScalarType::Int:
      return convert<int32_t, To>;
    case c10::ScalarType::Bool:
    case c10::ScalarType::Byte:
      return convert<uint8_t, To>;
    case c10::ScalarType::Double:
      return convert<double, To>;
    case c10::ScalarType::Half:
      return convert<c10::Half, To>;
    default:
      const auto* const row = find_dtype(from);
      return row == nullptr ? nullptr
                            : with_type(*row, []<class From>(From) -> Convert {
                                return convert<From, To>;
                              });
  }
}

bool has_vector_kernel(c10::ScalarType from, c10::ScalarType to) {
  return find_kernel_dtype(from) != nullptr && find_kernel_dtype(to) != nullptr;
}

// A conversion that the vector kernel does not have; null for others.
Convert conversion(c10::ScalarType from, c10::ScalarType to) {
  if (has_vector_kernel(from, to)) {
    return nullptr;
  }
  switch (to) {
    case c10::ScalarType::Bool:
      return conversion<bool>(from);
    case c10::ScalarType::Long:
      return conversion<int64_t>(from);
    case c10::ScalarType::Float:
      return conversion<float>(from);
    case c10::ScalarType::BFloat16:
      return conversion<c10::BFloat16>(from);
    case c10::ScalarType::Half:
      return conversion<c10::Half>(from);
    default:
      return nullptr;
  }
}

// The sizes over which a conversion goes, and where it reads and writes.
struct Places {
  Dims sizes;
  Place from, to;
};

// Images stay in the layout that they have.
Places place_conversion(Builder& builder, int64_t input, int64_t output) {
  const auto& values = builder.values();
  const auto& sizes = values.sizes(input);
  const auto row_by_row = [&] {
    const auto from = builder.dense(input);
    return Places{sizes, from, builder.make_dense(output)};
  };
  // Layouts are of dtypes that primitives compute in.
  if (find_dtype(values.dtype(input)) == nullptr ||
      find_dtype(values.dtype(output)) == nullptr) {
    return row_by_row();
  }
  const auto known = builder.place(input);
  const auto layout = layout_after(builder, output, known);
  if (layout == values.row_major(output)) {
    return row_by_row();
  }
  const auto as_is = layout_like(builder, input, known);
  const auto from = builder.in_layout(input, as_is);
  const auto to = builder.make(output, layout);
  if (!known.blocked) {
    return {sizes, {.ref = from, .strides = as_is.get_strides()}, to};
  }
  // What fills the last block is zero, and stays so.
  return {
      {count(layout.get_padded_dims())},
      {.ref = from, .strides = {1}},
      {.ref = to.ref, .strides = {1}}};
}

} // namespace

void infer_to(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  const auto from = values.dtype(input);
  const auto to = node.op == Op::nonzero ? c10::ScalarType::Bool
                  : node.op == Op::to
                      ? dtype_returned(node.as<attr::to>().dtype)
                      : values.dtype(tensor(node, 1));
  if (node.as<attr::to>().in_place) {
    broadcast(values.sizes(tensor(node, 1)), values.sizes(input), Keeps::first);
  }
  if (node.as<attr::to>().floating ||
      (!has_vector_kernel(from, to) && conversion(from, to) == nullptr)) {
    type_of(from);
    type_of(to);
  }
  values.set_type(node.output(), values.sizes(input), to);
}

void build_to(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto& values = builder.values();
  const auto from_type = values.dtype(input), to_type = values.dtype(output);
  if (from_type == to_type) {
    builder.set_place(output, builder.place(input));
    return;
  }
  const std::string name =
      to_type == c10::ScalarType::Bool ? "nonzero" : "convert";
  if (const auto kernel = conversion(from_type, to_type)) {
    using Args = ConvertArgs;
    const auto from = builder.dense(input);
    const auto to = builder.make_dense(output);
    add_kernel(
        builder,
        node,
        name,
        kernel,
        {.size = count(values.sizes(input))},
        {{&Args::src, from.ref}, {&Args::dst, to.ref}});
    return;
  }
  const auto [sizes, from, to] = place_conversion(builder, input, output);
  builder.add_pointwise(
      node,
      row_of(node.op).kind,
      name,
      {.sizes = sizes,
       .places =
           {{to.ref, to.strides, values.spec(output)},
            {from.ref, from.strides, values.spec(input)}},
       .instructions = {
           {.kind = kernels::Instruction::Kind::conversion,
            .dtype = find_kernel_dtype(to_type)->kernel,
            .from = find_kernel_dtype(from_type)->kernel,
            .a = 1,
            .out = 0}}});
}

} // namespace at::native::zendnn::plan
