// Concatenations whose parts are made where they belong.
#include <torch/csrc/zendnn/plan/describe/Operators.h>

#include <algorithm>

namespace at::native::zendnn::plan {

// Where each operand of a cat or stack lies in its result.
std::vector<Builder::Slice> Builder::slices_of(const Node& node) const {
  const auto whole = node.output();
  const bool stacks = node.op == Op::stack;
  const auto dim =
      wrap(node.as<attr::cat>().dim, std::ssize(values_.sizes(whole)));
  std::vector<Slice> slices;
  int64_t offset = 0;
  bool aligned = dim == 1 && !stacks;
  for (const auto& operand : node.inputs) {
    slices.push_back({whole, dim, offset, stacks});
    const auto width = stacks ? 1 : values_.sizes(operand.index)[dim];
    offset += width;
    aligned = aligned && width % channel_block() == 0;
  }
  for (auto& slice : slices) {
    slice.aligned = aligned;
  }
  return slices;
}

// A value that several concatenations read is made in the last of them: the
// earlier ones then are slices of it (as in DenseNet).
void Builder::find_slices() {
  if (values_.description().without.contains("join_in_place")) {
    return;
  }
  for (const auto& node : values_.nodes()) {
    if (node->op != Op::cat && node->op != Op::stack) {
      continue;
    }
    const auto slices = slices_of(*node);
    for (auto i = slices.size(); i-- > 0;) { // the first of equal parts stays
      const auto part = node->inputs[i].index;
      if (!values_.is_constant(part)) {
        slices_[part] = slices[i];
      }
    }
  }
}

std::optional<Place> Builder::target(int64_t value) {
  const auto found = slices_.find(value);
  if (found == slices_.end()) {
    return std::nullopt;
  }
  return part_of(place_whole(found->second), value, found->second);
}

Place Builder::part_of(Place whole, int64_t value, const Slice& slice) const {
  auto& part = whole;
  if (part.blocked) {
    const auto strides = part.blocked->get_strides();
    part.ref.offset += strides[1] * (slice.offset / channel_block()) *
                       item_size(values_.dtype(value));
    part.blocked = blocked_layout(
        values_.sizes(value),
        values_.dtype(value),
        strides[0] / strides[1] * channel_block());
  } else {
    part.ref.offset += part.strides[slice.dim] * slice.offset *
                       item_size(values_.dtype(value));
    if (slice.stacked) {
      part.strides.erase(part.strides.begin() + slice.dim);
    }
  }
  return part;
}

// A concatenation may be a part of a larger one, and that of another: the
// outermost is placed first, in a loop, since there may be thousands.
Place Builder::place_whole(const Slice& slice) {
  std::vector<const Slice*> unplaced;
  for (const auto* part = &slice; places_[part->whole].empty();) {
    unplaced.push_back(part);
    const auto outer = slices_.find(part->whole);
    if (outer == slices_.end()) {
      break;
    }
    part = &outer->second;
  }
  for (; !unplaced.empty(); unplaced.pop_back()) {
    place_in_outer(*unplaced.back());
  }
  return *places_[slice.whole].front();
}

// Places the result of a concatenation, in a larger one that has a place.
void Builder::place_in_outer(const Slice& slice) {
  const auto whole = slice.whole;
  const auto& shape = values_.sizes(whole);
  const bool spatial = (shape.size() == 4 || shape.size() == 5) &&
                       slice.dim == 1 && !slice.stacked;
  std::optional<memory::desc> layout; // unless it is row-major
  if (spatial && layout_ == Layout::channels_last) {
    layout.emplace(
        shape, type_of(values_.dtype(whole)), channels_last_strides(shape));
  } else if (spatial && layout_ == Layout::blocked && slice.aligned) {
    layout = blocked_layout(shape, values_.dtype(whole));
  }
  const auto outer = target(whole);
  if (outer &&
      outer->blocked.has_value() == (layout && layout->get_inner_nblks() > 0)) {
    set_place(whole, *outer);
  } else if (layout) {
    make(whole, *layout);
  } else {
    make_dense(whole);
  }
}

// Whether two places are the same memory, and lay the value out alike.
bool Builder::is_same(int64_t value, const Place& a, const Place& b) const {
  const auto& shape = values_.sizes(value);
  return a.ref.buffer == b.ref.buffer && a.ref.offset == b.ref.offset &&
         a.blocked == b.blocked &&
         (a.blocked || meaningful_strides(shape, a.strides) ==
                           meaningful_strides(shape, b.strides));
}

// Parts that lie side by side already, in a larger concatenation, need no copy.
bool Builder::place_side_by_side(const Node& node) {
  const auto whole = node.output();
  const auto& shape = values_.sizes(whole);
  const auto slices = slices_of(node);
  auto joined = place(node.inputs[0].index);
  if (joined.blocked) {
    const auto strides = joined.blocked->get_strides();
    if (shape.size() < 3 || shape.size() > 5 || !slices[0].aligned) {
      return false;
    }
    const auto channels = strides[0] / strides[1] * channel_block();
    if (shape[0] > 1 && shape[1] > channels) {
      return false;
    }
    joined.blocked = blocked_layout(shape, values_.dtype(whole), channels);
  }
  for (size_t i = 0; i < slices.size(); ++i) {
    const auto part = node.inputs[i].index;
    if (!is_same(part, place(part), part_of(joined, part, slices[i]))) {
      return false;
    }
  }
  set_place(whole, joined);
  return true;
}

void Builder::concatenate(const Node& node) {
  const auto whole = node.output();
  if (values_.is_joined(whole) ||
      (node.op == Op::cat && places_[whole].empty() &&
       place_side_by_side(node))) {
    return;
  }
  const auto slices = slices_of(node);
  for (size_t i = 0; i < slices.size(); ++i) {
    const auto part = node.inputs[i].index;
    // It may have been made for another concatenation.
    const auto place = part_of(place_whole(slices[i]), part, slices[i]);
    if (!find_place(part, [&](const Place& other) {
          return is_same(part, other, place);
        })) {
      copy(part, this->place(part), place);
    }
  }
}

void infer_cat(Values& values, const Node& node) {
  const bool stacks = node.op == Op::stack;
  auto out = values.sizes(tensor(node, 0));
  const auto dtype = values.dtype(tensor(node, 0));
  const auto dim = wrap(node.as<attr::cat>().dim, std::ssize(out) + stacks);
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    auto sizes = values.sizes(tensor(node, i));
    if (sizes.size() != out.size() || values.dtype(tensor(node, i)) != dtype) {
      refuse("a concatenation of different tensors");
    }
    if (!stacks) {
      out[dim] += sizes[dim];
      sizes[dim] = out[dim];
    }
    if (sizes != out) {
      refuse("a concatenation of different sizes");
    }
  }
  if (stacks) {
    out.insert(out.begin() + dim, std::ssize(node.inputs));
  }
  type_of(dtype);
  values.set_type(node.output(), out, dtype);
}

void build_cat(Builder& builder, const Node& node) {
  builder.concatenate(node);
}

} // namespace at::native::zendnn::plan
