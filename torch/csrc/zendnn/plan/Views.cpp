// Views: the same memory with other sizes and strides, or a copy where strides
// cannot say it.
#include <torch/csrc/zendnn/plan/Operators.h>

#include <ATen/TensorUtils.h>

#include <algorithm>
#include <numeric>

namespace at::native::zendnn::plan {
namespace {

// A tensor's sizes, and where its elements are from the first one on.
struct View {
  Dims sizes, strides;
  Number offset{}; // in elements
};

void move(View& view, const Number& elements, int64_t stride) {
  const auto moved = sum(view.offset, elements, stride);
  if (!moved) {
    refuse("a view beyond 64 bits");
  }
  view.offset = *moved;
}

int64_t rank(const View& view) {
  return static_cast<int64_t>(view.sizes.size());
}

// What a view operator makes of a tensor. Sizes do not depend on strides, so
// the same functions infer and build; `copied` says that strides were not
// enough, and that the view is of a row-major copy.
using Make = View (*)(const Values&, const Node&, View, bool& copied);

View reshaped(View view, Dims sizes, bool& copied) {
  int64_t known = 1, open = -1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == -1) {
      if (open >= 0) {
        refuse("a view with two open sizes");
      }
      open = static_cast<int64_t>(i);
    } else {
      known *= sizes[i];
    }
  }
  const auto elements = count(view.sizes);
  if (open >= 0) {
    if (known == 0 || elements % known != 0) {
      refuse("a view of another number of elements");
    }
    sizes[open] = elements / known;
  } else if (known != elements) {
    refuse("a view of another number of elements");
  }
  if (elements == 0) {
    refuse("an empty tensor");
  }
  const auto strides =
      at::detail::computeStride(view.sizes, view.strides, IntArrayRef(sizes));
  copied = !strides;
  return {
      sizes,
      strides ? Dims(strides->begin(), strides->end())
              : row_major_strides(sizes),
      view.offset};
}

Dims numbers(const Values& values, const Node& node, size_t first) {
  Dims found;
  for (auto i = first; i < node.inputs.size(); ++i) {
    found.push_back(values.number(node.inputs[i]));
  }
  return found;
}

View make_view(const Values& b, const Node& n, View v, bool& copied) {
  return reshaped(std::move(v), numbers(b, n, 1), copied);
}

View make_flatten(const Values& b, const Node& n, View v, bool& copied) {
  if (v.sizes.empty()) {
    return {{1}, {1}, v.offset};
  }
  const auto first = wrap(b.number(n.inputs[1]), rank(v));
  const auto last = wrap(b.number(n.inputs[2]), rank(v));
  if (last < first) {
    refuse("a flatten that ends before it starts");
  }
  Dims sizes(v.sizes.begin(), v.sizes.begin() + first);
  sizes.push_back(std::accumulate(
      v.sizes.begin() + first,
      v.sizes.begin() + last + 1,
      int64_t{1},
      std::multiplies<>()));
  sizes.insert(sizes.end(), v.sizes.begin() + last + 1, v.sizes.end());
  return reshaped(std::move(v), std::move(sizes), copied);
}

View make_unflatten(const Values& b, const Node& n, View v, bool& copied) {
  const auto dim = wrap(b.number(n.inputs[1]), rank(v));
  auto inner = numbers(b, n, 2);
  const auto open = std::find(inner.begin(), inner.end(), -1);
  if (open != inner.end()) {
    *open = 1;
    const auto known = count(inner);
    if (known == 0 || v.sizes[dim] % known != 0) {
      refuse("an unflatten of another number of elements");
    }
    *open = v.sizes[dim] / known;
  }
  if (count(inner) != v.sizes[dim]) {
    refuse("an unflatten of another number of elements");
  }
  Dims sizes(v.sizes.begin(), v.sizes.begin() + dim);
  sizes.insert(sizes.end(), inner.begin(), inner.end());
  sizes.insert(sizes.end(), v.sizes.begin() + dim + 1, v.sizes.end());
  return reshaped(std::move(v), std::move(sizes), copied);
}

View make_transpose(const Values& b, const Node& n, View v, bool& /*copied*/) {
  if (!v.sizes.empty()) {
    const auto one = wrap(b.number(n.inputs[1]), rank(v));
    const auto two = wrap(b.number(n.inputs[2]), rank(v));
    std::swap(v.sizes[one], v.sizes[two]);
    std::swap(v.strides[one], v.strides[two]);
  }
  return v;
}

View make_permute(const Values& b, const Node& n, View v, bool& /*copied*/) {
  const auto order = numbers(b, n, 1);
  if (order.size() != v.sizes.size()) {
    refuse("a permutation of other dimensions");
  }
  View made{{}, {}, v.offset};
  std::vector<bool> seen(order.size());
  for (const auto number : order) {
    const auto dim = wrap(number, rank(v));
    if (seen[dim]) {
      refuse("a permutation that repeats a dimension");
    }
    seen[dim] = true;
    made.sizes.push_back(v.sizes[dim]);
    made.strides.push_back(v.strides[dim]);
  }
  return made;
}

View make_unsqueeze(const Values& b, const Node& n, View v, bool& /*copied*/) {
  const auto dim = wrap(b.number(n.inputs[1]), rank(v) + 1);
  const auto stride = dim < rank(v) ? v.sizes[dim] * v.strides[dim] : 1;
  v.sizes.insert(v.sizes.begin() + dim, 1);
  v.strides.insert(v.strides.begin() + dim, stride);
  return v;
}

View make_squeeze(const Values& b, const Node& n, View v, bool& /*copied*/) {
  const auto dim = wrap(b.number(n.inputs[1]), rank(v));
  if (v.sizes[dim] == 1) {
    v.sizes.erase(v.sizes.begin() + dim);
    v.strides.erase(v.strides.begin() + dim);
  }
  return v;
}

View expanded(View v, const Dims& wanted) {
  if (wanted.size() < v.sizes.size()) {
    refuse("an expand to fewer dimensions");
  }
  const auto extra = wanted.size() - v.sizes.size();
  View made{wanted, Dims(wanted.size(), 0), v.offset};
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (i < extra) {
      if (wanted[i] < 0) {
        refuse("an expand that leaves a new size open");
      }
      continue;
    }
    const auto size = v.sizes[i - extra];
    if (wanted[i] == -1 || wanted[i] == size) {
      made.sizes[i] = size;
      made.strides[i] = v.strides[i - extra];
    } else if (size != 1) {
      refuse("an expand of a size that is not 1");
    }
  }
  return made;
}

View make_expand(const Values& b, const Node& n, View v, bool& /*copied*/) {
  return expanded(std::move(v), numbers(b, n, 1));
}

View make_expand_as(const Values& b, const Node& n, View v, bool& /*copied*/) {
  return expanded(std::move(v), b.sizes(tensor(n, 1)));
}

View make_select(const Values& b, const Node& n, View v, bool& /*copied*/) {
  const auto dim = wrap(b.number(n.inputs[1]), rank(v));
  const auto index = b.unbound(n.inputs[2]);
  const bool bound = b.keeps_within(index, 0, v.sizes[dim] - 1);
  move(
      v,
      bound ? index : Number{wrap(b.number(n.inputs[2]), v.sizes[dim])},
      v.strides[dim]);
  v.sizes.erase(v.sizes.begin() + dim);
  v.strides.erase(v.strides.begin() + dim);
  return v;
}

// A slice between bounds that move together, whose size stays.
bool slice_bound(const Values& b, const Node& n, View& v, int64_t dim) {
  if (!n.inputs[2] || !n.inputs[3]) {
    return false;
  }
  const auto first = b.unbound(n.inputs[2]);
  const auto length = sum(b.unbound(n.inputs[3]), first, -1);
  if (first.is_constant() || !length || !length->is_constant() ||
      length->constant < 0 ||
      !b.keeps_within(first, 0, v.sizes[dim] - length->constant)) {
    return false;
  }
  move(v, first, v.strides[dim]);
  v.sizes[dim] = length->constant;
  return true;
}

View make_slice(const Values& b, const Node& n, View v, bool& /*copied*/) {
  const auto dim = wrap(b.number(n.inputs[1]), rank(v));
  const auto size = v.sizes[dim];
  const auto bound = [&](size_t index, int64_t otherwise) {
    if (!n.inputs[index]) {
      return otherwise;
    }
    const auto number = b.number(n.inputs[index]);
    return std::clamp<int64_t>(number < 0 ? number + size : number, 0, size);
  };
  const auto step = b.number(n.inputs[4]);
  if (step <= 0) {
    refuse("a slice with a step of " + std::to_string(step));
  }
  if (!slice_bound(b, n, v, dim)) {
    const auto first = bound(2, 0), last = bound(3, size);
    move(v, {first}, v.strides[dim]);
    v.sizes[dim] = std::max<int64_t>(last - first, 0);
  }
  v.sizes[dim] = v.sizes[dim] > 0 ? (v.sizes[dim] - 1) / step + 1 : 0;
  v.strides[dim] *= step;
  return v;
}

View make_same(
    const Values& /*b*/,
    const Node& /*n*/,
    View v,
    bool& /*copied*/) {
  return v;
}

Make find_make(const std::string& op) {
  static const std::unordered_map<std::string, Make> table{
      {"view", make_view},
      {"flatten", make_flatten},
      {"unflatten", make_unflatten},
      {"transpose", make_transpose},
      {"permute", make_permute},
      {"unsqueeze", make_unsqueeze},
      {"squeeze", make_squeeze},
      {"expand", make_expand},
      {"expand_as", make_expand_as},
      {"select", make_select},
      {"slice", make_slice},
      {"contiguous", make_same},
  };
  return table.at(op);
}

Dims split_sizes(const Values& values, const Node& node) {
  const auto& sizes = values.sizes(tensor(node, 0));
  const auto whole = sizes[wrap(
      node.get(attr::split::dim), static_cast<int64_t>(sizes.size()))];
  const auto results = static_cast<int64_t>(node.outputs.size());
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
  if (static_cast<int64_t>(parts.size()) != results ||
      std::accumulate(parts.begin(), parts.end(), int64_t{0}) != whole) {
    refuse("a split into other parts");
  }
  return parts;
}

} // namespace

void infer_view(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  const auto& sizes = values.sizes(input);
  bool copied = false;
  const auto made =
      find_make(node.op)(values, node, {sizes, values.strides(input)}, copied);
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
  const auto make = find_make(node.op);
  auto from = builder.strided(input);
  bool copied = false;
  auto made = make(builder, node, {builder.sizes(input), from.strides}, copied);
  if (copied) {
    from = builder.dense(input);
    made = make(builder, node, {builder.sizes(input), from.strides}, copied);
  }
  const auto bytes = sum({}, made.offset, item_size(builder.dtype(input)));
  if (!bytes) {
    refuse("a view beyond 64 bits");
  }
  builder.set_place(
      output,
      {.ref = builder.moved(from.ref, *bytes), .strides = made.strides});
}

void infer_split(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  const auto parts = split_sizes(values, node);
  auto sizes = values.sizes(input);
  const auto dim =
      wrap(node.get(attr::split::dim), static_cast<int64_t>(sizes.size()));
  for (size_t i = 0; i < parts.size(); ++i) {
    sizes[dim] = parts[i];
    values.set_type(
        node.outputs[i], sizes, values.dtype(input), values.strides(input));
  }
}

void build_split(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0);
  const auto from = builder.strided(input);
  const auto dim = wrap(
      node.get(attr::split::dim),
      static_cast<int64_t>(builder.sizes(input).size()));
  auto offset = from.ref.offset;
  for (const auto output : node.outputs) {
    builder.set_place(
        output, {.ref = {from.ref.buffer, offset}, .strides = from.strides});
    offset += builder.sizes(output)[dim] * from.strides[dim] *
              item_size(builder.dtype(input));
  }
}

} // namespace at::native::zendnn::plan
