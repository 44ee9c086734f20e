// Views: the same memory with other sizes and strides, or a copy where strides
// cannot say it.
#include <torch/csrc/zendnn/plan/Views.h>

#include <ATen/EmptyTensor.h>

#include <limits>
#include <numeric>

namespace at::native::zendnn::plan {
namespace {

// Applies torch's own operator to a tensor without memory.
Tensor
view_in_torch(const std::string& op, const Tensor& given, const Dims& numbers) {
  using Make = Tensor (*)(const Tensor& x, const Dims& n);
  static const std::unordered_map<std::string, Make> table{
      {"view", [](const Tensor& x, const Dims& n) { return x.reshape(n); }},
      {"flatten",
       [](const Tensor& x, const Dims& n) { return x.flatten(n[0], n[1]); }},
      {"unflatten",
       [](const Tensor& x, const Dims& n) {
         return x.unflatten(n[0], IntArrayRef(n).slice(1));
       }},
      {"transpose",
       [](const Tensor& x, const Dims& n) { return x.transpose(n[0], n[1]); }},
      {"permute", [](const Tensor& x, const Dims& n) { return x.permute(n); }},
      {"unsqueeze",
       [](const Tensor& x, const Dims& n) { return x.unsqueeze(n[0]); }},
      {"squeeze",
       [](const Tensor& x, const Dims& n) { return x.squeeze(n[0]); }},
      {"expand", [](const Tensor& x, const Dims& n) { return x.expand(n); }},
      {"expand_as", [](const Tensor& x, const Dims& n) { return x.expand(n); }},
      {"select",
       [](const Tensor& x, const Dims& n) { return x.select(n[0], n[1]); }},
      {"slice",
       [](const Tensor& x, const Dims& n) {
         return x.slice(n[0], n[1], n[2], n[3]);
       }},
      {"contiguous", [](const Tensor& x, const Dims& /*n*/) { return x; }},
  };
  return table.at(op)(given, numbers);
}

// A select or slice of which a call's numbers change the start alone.
struct Moving {
  Number start;
  int64_t dim, length;
};

// The operands of select and slice.
constexpr size_t kDim = 1, kStart = 2, kEnd = 3;

std::optional<Moving> find_moving(const Values& values, const Node& node) {
  const bool slices = node.op == "slice";
  if (!slices && node.op != "select") {
    return std::nullopt;
  }
  if (slices && (!node.inputs[kStart] || !node.inputs[kEnd])) {
    return std::nullopt;
  }
  const auto start = values.unbound(node.inputs[kStart]);
  const auto length =
      slices ? sum(values.unbound(node.inputs[kEnd]), start, -1) : Number{1};
  const auto& sizes = values.sizes(tensor(node, 0));
  const auto dim = wrap(values.number(node.inputs[kDim]), std::ssize(sizes));
  if (start.is_constant() || !length || !length->is_constant() ||
      length->constant < 0 ||
      !values.keeps_within(start, 0, sizes[dim] - length->constant)) {
    return std::nullopt;
  }
  return Moving{start, dim, length->constant};
}

// A node's numbers; those of a moving one as it starts at 0.
Dims view_numbers(
    const Values& values,
    const Node& node,
    const std::optional<Moving>& moving) {
  if (node.op == "expand_as") {
    return values.sizes(tensor(node, 1));
  }
  Dims found;
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (moving && i == kStart) {
      found.push_back(0);
    } else if (moving && i == kEnd) {
      found.push_back(moving->length);
    } else if (node.inputs[i]) {
      found.push_back(values.number(node.inputs[i]));
    } else { // a bound of a slice
      found.push_back(i == kStart ? 0 : std::numeric_limits<int64_t>::max());
    }
  }
  return found;
}

Dims split_sizes(const Values& values, const Node& node) {
  const auto& sizes = values.sizes(tensor(node, 0));
  const auto whole = sizes[wrap(node.get(attr::split::dim), std::ssize(sizes))];
  const auto results = std::ssize(node.outputs);
  auto parts = node.get(attr::split::sizes);
  int64_t each = 0; // the size of all, but for the last
  if (const auto chunks = node.get(attr::split::chunks); chunks > 0) {
    each = whole / chunks + (whole % chunks != 0);
  } else if (parts.size() == 1 && results != 1) {
    each = parts[0];
  }
  if (each > 0) {
    if (whole / each + (whole % each != 0) != results) {
      refuse("a split into other parts");
    }
    parts.assign(results, each);
    parts.back() = whole - (results - 1) * each;
  }
  if (std::ssize(parts) != results ||
      std::accumulate(parts.begin(), parts.end(), int64_t{0}) != whole) {
    refuse("a split into other parts");
  }
  return parts;
}

} // namespace

MadeView
make_view(const Values& values, const Node& node, const Dims& strides) {
  const auto input = tensor(node, 0);
  const auto moving = find_moving(values, node);
  const auto numbers = view_numbers(values, node, moving);
  try {
    const Tensor given =
        at::detail::empty_strided_meta(values.sizes(input), strides, at::kByte);
    const auto made = view_in_torch(node.op, given, numbers);
    std::optional<Number> offset = Number{made.storage_offset()};
    if (moving) {
      offset = sum(*offset, moving->start, strides[moving->dim]);
    }
    offset = offset ? sum({}, *offset, item_size(values.dtype(input))) : offset;
    if (!offset) {
      refuse("a view beyond 64 bits");
    }
    return {
        made.sizes().vec(),
        made.strides().vec(),
        *offset,
        !made.is_alias_of(given)};
  } catch (const c10::Error& error) {
    refuse(error.what_without_backtrace());
  }
}

void infer_view(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  const auto made = make_view(values, node, values.strides(input));
  values.set_type(
      node.output(),
      made.sizes,
      values.dtype(input),
      node.op == "contiguous" ? row_major_strides(made.sizes) : made.strides);
}

void build_view(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  if (node.op == "contiguous" && builder.place(input).blocked) {
    builder.set_place(output, builder.place(input));
    return;
  }
  auto from = builder.strided(input);
  auto made = make_view(builder, node, from.strides);
  if (made.copied) {
    from = builder.dense(input);
    made = make_view(builder, node, from.strides);
  }
  builder.set_place(
      output,
      {.ref = builder.moved(from.ref, made.offset), .strides = made.strides});
}

void infer_split(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  const auto parts = split_sizes(values, node);
  auto sizes = values.sizes(input);
  const auto dim = wrap(node.get(attr::split::dim), std::ssize(sizes));
  for (size_t i = 0; i < parts.size(); ++i) {
    sizes[dim] = parts[i];
    values.set_type(
        node.outputs[i], sizes, values.dtype(input), values.strides(input));
  }
}

void build_split(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0);
  auto from = builder.strided(input);
  const auto dim = wrap(node.get(attr::split::dim), std::ssize(from.strides));
  for (const auto output : node.outputs) {
    builder.set_place(output, from);
    from.ref.offset += builder.sizes(output)[dim] * from.strides[dim] *
                       item_size(builder.dtype(input));
  }
}

void infer_as_strided(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  const auto& shape = values.sizes(input);
  const auto from = node.get(attr::as_strided::input_strides),
             sizes = node.get(attr::as_strided::sizes),
             strides = node.get(attr::as_strided::strides);
  const auto is_negative = [](int64_t stride) { return stride < 0; };
  if (from.size() != shape.size() || sizes.size() != strides.size() ||
      std::any_of(strides.begin(), strides.end(), is_negative) ||
      !is_dense(shape, from) || span(sizes, strides) > count(shape)) {
    refuse("a view of memory around a tensor");
  }
  values.set_type(node.output(), sizes, values.dtype(input), strides);
}

void build_as_strided(Builder& builder, const Node& node) {
  const auto from = builder.with_strides(
      tensor(node, 0), node.get(attr::as_strided::input_strides));
  builder.set_place(
      node.output(),
      {.ref = from.ref, .strides = node.get(attr::as_strided::strides)});
}

} // namespace at::native::zendnn::plan
