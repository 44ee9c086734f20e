// Concatenations whose parts are made where they belong.
#include <torch/csrc/zendnn/plan/Operators.h>

#include <algorithm>

namespace at::native::zendnn::plan {

// A value that several concatenations read is made in the last of them: the
// earlier ones then are slices of it (as in DenseNet).
void Builder::find_slices() {
  if (description_.without.contains("join_in_place")) {
    return;
  }
  for (const auto& node : description_.nodes) {
    const bool stacks = node.op == "stack";
    if (node.op != "cat" && !stacks) {
      continue;
    }
    const auto whole = node.output();
    const auto dim = wrap(
        node.get(attr::cat::dim), static_cast<int64_t>(sizes(whole).size()));
    int64_t offset = 0;
    bool aligned = true;
    std::set<int64_t> seen;
    for (const auto& operand : node.inputs) {
      const auto part = operand.index;
      aligned = aligned && !stacks && sizes(part)[dim] % channel_block() == 0;
      if (values_[part].constant < 0 && seen.insert(part).second) {
        slices_[part] = {whole, dim, offset, stacks};
      }
      offset += stacks ? 1 : sizes(part)[dim];
    }
    if (aligned) {
      aligned_.insert(whole);
    }
  }
}

std::optional<Place> Builder::target(int64_t value) {
  const auto found = slices_.find(value);
  return found == slices_.end() ? std::nullopt
                                : std::optional(part_of(value, found->second));
}

Place Builder::part_of(int64_t value, const Slice& slice) {
  auto part = place_whole(slice);
  if (part.blocked) {
    const auto strides = part.desc.get_strides();
    part.ref.offset +=
        strides[1] * (slice.offset / channel_block()) * item_size(dtype(value));
    part.desc = blocked_layout(
        sizes(value), dtype(value), strides[0] / strides[1] * channel_block());
  } else {
    part.ref.offset +=
        part.strides[slice.dim] * slice.offset * item_size(dtype(value));
    if (slice.stacked) {
      part.strides.erase(part.strides.begin() + slice.dim);
    }
  }
  return part;
}

Place Builder::place_whole(const Slice& slice) {
  const auto known = wholes_.find(slice.whole);
  if (known != wholes_.end()) {
    return known->second;
  }
  const auto& shape = sizes(slice.whole);
  const auto rank = shape.size();
  const bool spatial =
      rank >= 4 && rank <= 5 && slice.dim == 1 && !slice.stacked;
  Place made;
  if (spatial && layout_ == Layout::channels_last) {
    made.strides = channels_last_strides(shape);
  } else if (spatial && aligned_.contains(slice.whole)) {
    made.blocked = true;
    made.desc = blocked_layout(shape, dtype(slice.whole));
  } else {
    made.strides = row_major_strides(shape);
  }
  // The concatenation may be a part of a larger one, or a result.
  if (const auto outer = target(slice.whole);
      outer && outer->blocked == made.blocked) {
    made = *outer;
  } else {
    made = with_memory(slice.whole, made);
  }
  buffers_.occupy(made.ref, slice.whole);
  wholes_.emplace(slice.whole, made);
  return made;
}

// Parts that lie side by side, in a larger concatenation, are the whole
// already.
bool Builder::place_side_by_side(const Node& node, int64_t dim) {
  const auto whole = node.output();
  const auto first = place(node.inputs[0].index);
  int64_t offset = 0, channels = 0;
  if (first.blocked) {
    const auto strides = first.desc.get_strides();
    const auto& shape = sizes(whole);
    if (dim != 1 || shape.size() < 3 || shape.size() > 5) {
      return false;
    }
    channels = strides[0] / strides[1] * channel_block();
    if (shape[0] > 1 && shape[1] > channels) {
      return false;
    }
  }
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const auto part = node.inputs[i].index;
    const auto& other = place(part);
    if (other.ref.buffer != first.ref.buffer ||
        other.ref.offset != first.ref.offset + offset ||
        other.blocked != first.blocked) {
      return false;
    }
    if (first.blocked) {
      // Whole blocks of channels, of the same images.
      if (sizes(part)[1] % channel_block() != 0 ||
          other.desc != blocked_layout(sizes(part), dtype(part), channels)) {
        return false;
      }
      offset += sizes(part)[1] / channel_block() * other.desc.get_strides()[1] *
                item_size(dtype(part));
    } else {
      if (other.strides != first.strides) {
        return false;
      }
      offset += sizes(part)[dim] * first.strides[dim] * item_size(dtype(part));
    }
  }
  Place joined = first;
  if (first.blocked) {
    joined.desc = blocked_layout(sizes(whole), dtype(whole), channels);
  }
  set_place(whole, joined);
  return true;
}

void Builder::concatenate(const Node& node) {
  const auto whole = node.output();
  if (is_joined(whole)) {
    return;
  }
  const bool stacks = node.op == "stack";
  const auto dim =
      wrap(node.get(attr::cat::dim), static_cast<int64_t>(sizes(whole).size()));
  if (!stacks && !wholes_.contains(whole) && place_side_by_side(node, dim)) {
    return;
  }
  int64_t offset = 0;
  for (const auto& operand : node.inputs) {
    const auto part = operand.index;
    // In this concatenation, whichever it was made for.
    const auto place = part_of(part, {whole, dim, offset, stacks});
    offset += stacks ? 1 : sizes(part)[dim];
    const auto& known = places_[part];
    const bool there =
        std::any_of(known.begin(), known.end(), [&](const Place& other) {
          return other.ref.buffer == place.ref.buffer &&
                 other.ref.offset == place.ref.offset &&
                 other.blocked == place.blocked &&
                 describe(part, other) == describe(part, place);
        });
    if (!there) {
      copy(part, this->place(part), place);
    }
  }
  set_place(whole, wholes_.at(whole));
}

void infer_cat(Values& values, const Node& node) {
  auto out = values.sizes(tensor(node, 0));
  const auto dtype = values.dtype(tensor(node, 0));
  const auto dim =
      wrap(node.get(attr::cat::dim), static_cast<int64_t>(out.size()));
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    auto sizes = values.sizes(tensor(node, i));
    if (sizes.size() != out.size() || values.dtype(tensor(node, i)) != dtype) {
      refuse("a concatenation of different tensors");
    }
    out[dim] += sizes[dim];
    sizes[dim] = out[dim];
    if (sizes != out) {
      refuse("a concatenation of different sizes");
    }
  }
  type_of(dtype);
  values.set_type(node.output(), out, dtype);
}

void infer_stack(Values& values, const Node& node) {
  auto out = values.sizes(tensor(node, 0));
  const auto dtype = values.dtype(tensor(node, 0));
  type_of(dtype);
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (values.sizes(tensor(node, i)) != out ||
        values.dtype(tensor(node, i)) != dtype) {
      refuse("a stack of different tensors");
    }
  }
  const auto dim =
      wrap(node.get(attr::cat::dim), static_cast<int64_t>(out.size()) + 1);
  out.insert(out.begin() + dim, static_cast<int64_t>(node.inputs.size()));
  values.set_type(node.output(), out, dtype);
}

void build_cat(Builder& builder, const Node& node) {
  builder.concatenate(node);
}

void build_stack(Builder& builder, const Node& node) {
  build_cat(builder, node);
}

} // namespace at::native::zendnn::plan
