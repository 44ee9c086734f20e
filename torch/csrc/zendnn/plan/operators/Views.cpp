// Views: the same memory with other sizes and strides, or a copy where strides
// cannot say it.
#include <torch/csrc/zendnn/plan/operators/Views.h>

#include <ATen/ExpandUtils.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <c10/core/WrapDimMinimal.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

namespace at::native::zendnn::plan {
namespace {

// What a view makes of a tensor, in elements.
struct Geometry {
  Dims sizes, strides;
  int64_t offset = 0;
  bool copied = false; // since no strides can say it
};

void reshape(Geometry& x, const Dims& shape) {
  auto sizes = at::infer_size(shape, count(x.sizes));
  auto strides = at::detail::computeStride(x.sizes, x.strides, sizes);
  x.copied = !strides;
  x.strides = strides ? std::move(*strides) : row_major_strides(sizes);
  x.sizes = std::move(sizes);
}

// Puts sizes in the place of the dimensions [first, last).
void reshape_part(Geometry& x, size_t first, size_t last, const Dims& sizes) {
  Dims shape(x.sizes.begin(), x.sizes.begin() + first);
  shape.insert(shape.end(), sizes.begin(), sizes.end());
  shape.insert(shape.end(), x.sizes.begin() + last, x.sizes.end());
  reshape(x, shape);
}

void flatten(Geometry& x, const Dims& n) {
  const auto rank = std::ssize(x.sizes);
  const auto first = c10::maybe_wrap_dim(n[0], rank),
             last = c10::maybe_wrap_dim(n[1], rank);
  if (first > last) {
    refuse("a flatten of dimensions in the wrong order");
  }
  if (rank == 0) {
    reshape(x, {1});
  } else if (first < last) {
    const auto whole = std::accumulate(
        x.sizes.begin() + first,
        x.sizes.begin() + last + 1,
        int64_t{1},
        std::multiplies<>());
    reshape_part(x, first, last + 1, {whole});
  }
}

void unflatten(Geometry& x, const Dims& n) {
  const auto dim = wrap(n[0], std::ssize(x.sizes));
  if (n.size() < 2) {
    refuse("an unflatten into no dimensions");
  }
  const auto sizes = at::infer_size(IntArrayRef(n).slice(1), x.sizes[dim]);
  reshape_part(x, dim, dim + 1, sizes);
}

void permute(Geometry& x, const Dims& order) {
  const auto before = x;
  const auto rank = x.sizes.size();
  std::vector<bool> seen(rank);
  if (order.size() != rank) {
    refuse("a permutation of another number of dimensions");
  }
  for (size_t i = 0; i < rank; ++i) {
    const auto from = wrap(order[i], static_cast<int64_t>(rank));
    if (seen[from]) {
      refuse("a permutation that repeats a dimension");
    }
    seen[from] = true;
    x.sizes[i] = before.sizes[from];
    x.strides[i] = before.strides[from];
  }
}

void transpose(Geometry& x, const Dims& n) {
  const auto rank = std::ssize(x.sizes);
  const auto a = c10::maybe_wrap_dim(n[0], rank),
             b = c10::maybe_wrap_dim(n[1], rank);
  if (rank > 0) {
    std::swap(x.sizes[a], x.sizes[b]);
    std::swap(x.strides[a], x.strides[b]);
  }
}

void unsqueeze(Geometry& x, const Dims& n) {
  const auto dim = wrap(n[0], std::ssize(x.sizes) + 1);
  const bool is_last = dim == std::ssize(x.sizes);
  const auto stride = is_last ? 1 : x.sizes[dim] * x.strides[dim];
  x.sizes.insert(x.sizes.begin() + dim, 1);
  x.strides.insert(x.strides.begin() + dim, stride);
}

void remove(Geometry& x, int64_t dim) {
  x.sizes.erase(x.sizes.begin() + dim);
  x.strides.erase(x.strides.begin() + dim);
}

void squeeze(Geometry& x, const Dims& n) {
  const auto dim = c10::maybe_wrap_dim(n[0], std::ssize(x.sizes));
  if (!x.sizes.empty() && x.sizes[dim] == 1) {
    remove(x, dim);
  }
}

void expand(Geometry& x, const Dims& sizes) {
  if (sizes.size() < x.sizes.size()) {
    refuse("an expand to fewer dimensions");
  }
  std::tie(x.sizes, x.strides) =
      at::inferExpandGeometry(x.sizes, x.strides, sizes);
}

void select(Geometry& x, const Dims& n) {
  const auto dim = wrap(n[0], std::ssize(x.sizes));
  const auto size = x.sizes[dim];
  const auto index = n[1] < 0 ? n[1] + size : n[1];
  if (index < 0 || index >= size) {
    refuse("an index out of range");
  }
  x.offset = index * x.strides[dim];
  remove(x, dim);
}

void slice(Geometry& x, const Dims& n) {
  const auto dim = wrap(n[0], std::ssize(x.sizes));
  const auto size = x.sizes[dim], step = n[3];
  const auto within = [size](int64_t at, int64_t least) {
    return std::clamp(at < 0 ? at + size : at, least, size);
  };
  const auto start = within(n[1], 0);
  const auto length = within(n[2], start) - start;
  if (step <= 0) {
    refuse("a slice with a step of " + std::to_string(step));
  }
  x.sizes[dim] = length / step + (length % step != 0);
  x.offset = start * x.strides[dim];
  if (__builtin_mul_overflow(x.strides[dim], step, &x.strides[dim])) {
    refuse("a view beyond 64 bits");
  }
}

// Throws Refused, or c10::Error, where torch's operator does not take it.
void apply_view(Op op, Geometry& x, const Dims& numbers) {
  switch (op) {
    case Op::view:
      return reshape(x, numbers);
    case Op::flatten:
      return flatten(x, numbers);
    case Op::unflatten:
      return unflatten(x, numbers);
    case Op::transpose:
      return transpose(x, numbers);
    case Op::permute:
      return permute(x, numbers);
    case Op::unsqueeze:
      return unsqueeze(x, numbers);
    case Op::squeeze:
      return squeeze(x, numbers);
    case Op::expand:
    case Op::expand_as:
      return expand(x, numbers);
    case Op::select:
      return select(x, numbers);
    case Op::slice:
      return slice(x, numbers);
    case Op::contiguous:
      return;
    default:
      refuse("a view by " + name_of(op));
  }
}

// A select or slice of which a call's numbers change the start alone.
struct Moving {
  Number start;
  int64_t dim, length;
};

// The operands of select and slice.
constexpr size_t kDim = 1, kStart = 2, kEnd = 3;

std::optional<Moving> find_moving(const Values& values, const Node& node) {
  const bool slices = node.op == Op::slice;
  if (!slices && node.op != Op::select) {
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
  if (node.op == Op::expand_as) {
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
  const auto whole = sizes[wrap(node.as<attr::split>().dim, std::ssize(sizes))];
  const auto results = std::ssize(node.outputs);
  auto parts = node.as<attr::split>().sizes;
  int64_t each = 0; // the size of all, but for the last
  if (const auto chunks = node.as<attr::split>().chunks; chunks > 0) {
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
    Geometry geometry{values.sizes(input), strides};
    apply_view(node.op, geometry, numbers);
    std::optional<Number> offset = Number{geometry.offset};
    if (moving) {
      offset = sum(*offset, moving->start, strides[moving->dim]);
    }
    offset = offset ? sum({}, *offset, item_size(values.dtype(input))) : offset;
    if (!offset) {
      refuse("a view beyond 64 bits");
    }
    return {
        std::move(geometry.sizes),
        std::move(geometry.strides),
        *offset,
        geometry.copied};
  } catch (const c10::Error& error) {
    refuse(error.what_without_backtrace());
  }
}

void infer_view(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  const auto view = make_view(values, node, values.strides(input));
  values.set_type(
      node.output(),
      view.sizes,
      values.dtype(input),
      node.op == Op::contiguous ? row_major_strides(view.sizes) : view.strides);
}

void build_view(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  if (node.op == Op::contiguous && builder.place(input).blocked) {
    builder.set_place(output, builder.place(input));
    return;
  }
  auto from = builder.strided(input);
  auto view = make_view(builder.values(), node, from.strides);
  if (view.copied) {
    from = builder.dense(input);
    view = make_view(builder.values(), node, from.strides);
  }
  builder.set_place(
      output,
      {.ref = builder.moved(from.ref, view.offset), .strides = view.strides});
}

void infer_split(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  const auto parts = split_sizes(values, node);
  auto sizes = values.sizes(input);
  const auto dim = wrap(node.as<attr::split>().dim, std::ssize(sizes));
  for (size_t i = 0; i < parts.size(); ++i) {
    sizes[dim] = parts[i];
    values.set_type(
        node.outputs[i], sizes, values.dtype(input), values.strides(input));
  }
}

void build_split(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0);
  auto from = builder.strided(input);
  const auto dim = wrap(node.as<attr::split>().dim, std::ssize(from.strides));
  for (const auto output : node.outputs) {
    builder.set_place(output, from);
    from.ref.offset += builder.values().sizes(output)[dim] * from.strides[dim] *
                       item_size(builder.values().dtype(input));
  }
}

void infer_as_strided(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  const auto& shape = values.sizes(input);
  const auto from = node.as<attr::as_strided>().input_strides,
             sizes = node.as<attr::as_strided>().sizes,
             strides = node.as<attr::as_strided>().strides;
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
      tensor(node, 0), node.as<attr::as_strided>().input_strides);
  builder.set_place(
      node.output(),
      {.ref = from.ref, .strides = node.as<attr::as_strided>().strides});
}

} // namespace at::native::zendnn::plan
