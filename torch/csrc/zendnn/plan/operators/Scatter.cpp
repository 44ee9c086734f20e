// Tensors of which elements or a slice are replaced.
#include <torch/csrc/zendnn/plan/operators/Views.h>

#include <ATen/native/zendnn/kernels/indexing.h>

#include <string>
#include <vector>

namespace at::native::zendnn::plan {
namespace {

kernels::Scatter scatter_mode(const Node& node, c10::ScalarType dtype) {
  if (!node.as<attr::scatter>().add) {
    return kernels::Scatter::replace;
  }
  switch (dtype) {
    case kFloat:
      return kernels::Scatter::add_float32;
    case kBFloat16:
      return kernels::Scatter::add_bfloat16;
    case c10::ScalarType::Long:
      return kernels::Scatter::add_int64;
    default:
      refuse(std::string("sums of ") + c10::toString(dtype));
  }
}

// The slice that a slice_scatter replaces, of its first operand.
Node replaced_slice(const Node& node) {
  auto inputs = node.inputs;
  inputs.erase(inputs.begin() + 1);
  return {.op = Op::slice, .inputs = std::move(inputs)};
}

// Copies all of a tensor but that slice; all of it where what is left is not
// one part before the slice and one behind.
std::vector<Copy>
copies_around(const Copy& whole, int64_t dim, const MadeView& slice) {
  const auto stride = whole.to.strides[dim];
  if (!slice.offset.is_constant() || slice.strides[dim] != stride) {
    return {whole};
  }
  const auto first = slice.offset.constant / (stride * whole.item_bytes);
  const auto last = first + slice.sizes[dim];
  std::vector<Copy> parts;
  for (const auto& [begin, end] :
       {std::pair(int64_t{0}, first), std::pair(last, whole.sizes[dim])}) {
    auto part = whole;
    part.sizes[dim] = end - begin;
    for (auto* const place : {&part.from, &part.to}) {
      place->ref.offset += begin * place->strides[dim] * whole.item_bytes;
    }
    if (begin < end) {
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

} // namespace

void infer_scatter(Values& values, const Node& node) {
  const auto input = tensor(node, 0), value = tensor(node, 2);
  const auto& sizes = values.sizes(input);
  const auto& chosen = values.sizes(tensor(node, 1));
  const auto& from = values.sizes(value);
  check_copied(item_size(values.dtype(input)));
  if (values.dtype(tensor(node, 1)) != c10::ScalarType::Long) {
    refuse("indices that are not int64");
  }
  if (values.dtype(value) != values.dtype(input)) {
    refuse("a scatter of another type");
  }
  scatter_mode(node, values.dtype(input));
  const auto rank = std::ssize(sizes);
  const auto dim = wrap(node.as<attr::scatter>().dim, rank);
  for (int64_t d = 0; d < rank; ++d) {
    if (std::ssize(chosen) != rank || (d != dim && chosen[d] > sizes[d]) ||
        (!from.empty() && (std::ssize(from) != rank || chosen[d] > from[d]))) {
      refuse("indices of other sizes");
    }
  }
  values.set_type(node.output(), sizes, values.dtype(input));
}

void build_scatter(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), indices = tensor(node, 1),
             value = tensor(node, 2), output = node.output();
  const auto& sizes = builder.values().sizes(input);
  const auto bytes = item_size(builder.values().dtype(input));
  const auto dim = wrap(node.as<attr::scatter>().dim, std::ssize(sizes));
  const auto chosen = builder.strided(indices);
  auto from = builder.strided(value);
  const auto x = builder.dense(input);
  const auto to = builder.make_over(output, input, x);
  if (to.ref.buffer != x.ref.buffer || to.ref.offset != x.ref.offset) {
    builder.copy(input, x, to);
  }
  auto otherwise = step_in_torch(
      builder,
      node,
      {{input, x}, {indices, chosen}, {value, from}, {output, to}});
  from.strides.resize(sizes.size()); // a number repeats
  auto lines = builder.values().sizes(indices);
  const auto many = std::exchange(lines[dim], 1);
  using Args = kernels::ScatterArgs;
  add_kernel(
      builder,
      node,
      "scatter",
      kernels::scatter,
      {.ndim = std::ssize(sizes),
       .count = many,
       .index_step = chosen.strides[dim],
       .value_step = from.strides[dim],
       .out_step = to.strides[dim],
       .limit = sizes[dim],
       .itemsize = bytes,
       .mode = scatter_mode(node, builder.values().dtype(input))},
      {{&Args::indices, chosen.ref},
       {&Args::value, from.ref},
       {&Args::out, to.ref},
       {&Args::sizes, lines},
       {&Args::index_strides, chosen.strides},
       {&Args::value_strides, from.strides},
       {&Args::out_strides, to.strides}},
      /*flops=*/0,
      std::move(otherwise));
}

void infer_slice_scatter(Values& values, const Node& node) {
  const auto whole = tensor(node, 0), value = tensor(node, 1);
  const auto& strides = values.strides(whole);
  check_copied(item_size(values.dtype(whole)));
  if (values.dtype(value) != values.dtype(whole)) {
    refuse("a slice of another type");
  }
  if (overlaps(values.sizes(whole), strides)) {
    refuse("a slice of several elements in one place");
  }
  if (make_view(values, replaced_slice(node), strides).sizes !=
      values.sizes(value)) {
    refuse("a slice of other sizes");
  }
  const auto& sizes = values.sizes(whole);
  values.set_type(
      node.output(),
      sizes,
      values.dtype(whole),
      node.as<attr::slice_scatter>().dense
          ? combined_strides({{sizes, strides}})
          : strides);
}

void build_slice_scatter(Builder& builder, const Node& node) {
  const auto whole = tensor(node, 0), value = tensor(node, 1),
             output = node.output();
  const auto& sizes = builder.values().sizes(whole);
  if (builder.values().sizes(value) == sizes) {
    builder.set_place(output, builder.place(value));
    return;
  }
  const auto bytes = item_size(builder.values().dtype(whole));
  const auto dim =
      wrap(builder.values().number(node.inputs[2]), std::ssize(sizes));
  const auto from = builder.addressable(whole), part = builder.strided(value);
  const bool in_place = builder.reuse(output, whole, from);
  const auto to = in_place ? from : builder.make_dense(output);
  const auto slice =
      make_view(builder.values(), replaced_slice(node), to.strides);
  std::vector<Copy> copies;
  if (!in_place) {
    copies = copies_around({sizes, bytes, from, to}, dim, slice);
  }
  copies.push_back(
      {builder.values().sizes(value),
       bytes,
       part,
       {.ref = builder.moved(to.ref, slice.offset), .strides = slice.strides}});
  add_copies(builder, node, "slice_scatter", copies);
}

} // namespace at::native::zendnn::plan
