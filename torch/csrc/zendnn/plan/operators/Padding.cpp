// Padding, rolling and triangles.
#include <torch/csrc/zendnn/plan/build/Kernel.h>

#include <ATen/native/zendnn/kernels/memory.h>

namespace at::native::zendnn::plan {
namespace {

// What is added before and after each dimension, the last one first.
Dims pads_of(const Values& values, const Node& node) {
  Dims pads;
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    pads.push_back(values.number(node.inputs[i]));
  }
  return pads;
}

} // namespace

void infer_pad(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  auto sizes = values.sizes(input);
  const auto pads = pads_of(values, node);
  type_of(values.dtype(input));
  if (pads.size() % 2 != 0 || pads.size() > 2 * sizes.size()) {
    refuse("a padding of dimensions that are not there");
  }
  for (size_t i = 0; i < pads.size(); ++i) {
    if (pads[i] < 0) {
      refuse("a negative padding");
    }
    auto& size = sizes[sizes.size() - 1 - i / 2];
    if (__builtin_add_overflow(size, pads[i], &size)) {
      refuse("a padding of " + std::to_string(pads[i]));
    }
  }
  values.set_type(node.output(), sizes, values.dtype(input));
}

void build_pad(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto pads = pads_of(builder.values(), node);
  if (builder.values().sizes(input) == builder.values().sizes(output)) {
    builder.set_place(output, builder.place(input));
    return;
  }
  const auto from = builder.strided(input);
  const auto to = builder.make_dense(output);
  const auto& sizes = builder.values().sizes(input);
  const auto dtype = builder.values().dtype(input);
  const auto bytes = item_size(dtype);
  auto inner = to;
  for (size_t i = 0; i < pads.size(); i += 2) {
    inner.ref.offset += pads[i] * to.strides[sizes.size() - 1 - i / 2] * bytes;
  }
  const auto value = static_cast<float>(node.as<attr::pad>().value);
  const auto around = place_number(builder, dtype, value, sizes.size());
  add_copies(
      builder,
      node,
      "pad",
      {{builder.values().sizes(output), bytes, around, to},
       {sizes, bytes, from, inner}});
}

void infer_roll(Values& values, const Node& node) {
  if (node.as<attr::roll>().shifts.size() !=
      node.as<attr::roll>().dims.size()) {
    refuse("shifts of other dimensions");
  }
  infer_eltwise(values, node);
}

void build_roll(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto& sizes = builder.values().sizes(input);
  const auto rank = std::ssize(sizes);
  const auto shifts = node.as<attr::roll>().shifts,
             dims = node.as<attr::roll>().dims;
  Dims first(sizes.size(), 0); // where the first element goes
  for (size_t i = 0; i < dims.size(); ++i) {
    const auto dim = wrap(dims[i], rank);
    const auto size = sizes[dim];
    first[dim] = ((first[dim] + shifts[i] % size) % size + size) % size;
  }
  const auto from = builder.strided(input);
  const auto to = builder.make_dense(output);
  const auto bytes = item_size(builder.values().dtype(input));
  // What moves on within a dimension and what wraps around to its start are
  // copied apart.
  std::vector<Copy> parts{{sizes, bytes, from, to}};
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (first[dim] == 0) {
      continue;
    }
    auto wrapped = parts;
    const auto moved = sizes[dim] - first[dim];
    for (auto& part : parts) {
      part.sizes[dim] = moved;
      part.to.ref.offset += first[dim] * to.strides[dim] * bytes;
    }
    for (auto& part : wrapped) {
      part.sizes[dim] = first[dim];
      part.from.ref.offset += moved * from.strides[dim] * bytes;
    }
    parts.insert(parts.end(), wrapped.begin(), wrapped.end());
  }
  add_copies(builder, node, "roll", parts);
}

void infer_triangle(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  const auto& sizes = values.sizes(input);
  check_copied(item_size(values.dtype(input)));
  if (sizes.size() < 2) {
    refuse("a triangle of a tensor that is no matrix");
  }
  values.set_type(node.output(), sizes, values.dtype(input));
}

void build_triangle(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto& sizes = builder.values().sizes(input);
  const auto from = builder.dense(input);
  const auto to = builder.make_over(output, input, from);
  const auto rows = sizes.end()[-2], cols = sizes.back();
  using Args = kernels::TriangleArgs;
  add_kernel(
      builder,
      node,
      name_of(node.op),
      kernels::triangle,
      {.batch = count(sizes) / (rows * cols),
       .rows = rows,
       .cols = cols,
       .diagonal = node.as<attr::triangle>().diagonal,
       .upper = node.op == Op::triu,
       .itemsize = item_size(builder.values().dtype(input))},
      {{&Args::x, from.ref}, {&Args::out, to.ref}});
}

} // namespace at::native::zendnn::plan
