// Where values are: in the layout that a reader wants, and where they are made.
#include <torch/csrc/zendnn/plan/build/Builder.h>

#include <algorithm>
#include <utility>

namespace at::native::zendnn::plan {
const Place& Builder::place(int64_t value) const {
  if (places_[value].empty()) {
    refuse("a value that nothing has made");
  }
  return *places_[value].front();
}

Place Builder::dense(int64_t value) {
  const auto& shape = values_.sizes(value);
  Place to{.strides = row_major_strides(shape)};
  if (const auto* known = find_place(value, [&](const Place& it) {
        return !it.blocked && is_row_major(shape, it.strides);
      })) {
    to.ref = known->ref; // dimensions of 1 may have any stride there
    return to;
  }
  const Place from = place(value);
  const auto bytes = count(shape) * item_size(values_.dtype(value));
  if (const auto index = values_.constant_index(value); index >= 0) {
    to.ref = prepared("dense " + std::to_string(index), bytes, copy_of(index));
  } else {
    to.ref = arena(bytes);
    copy(value, from, to);
  }
  return set_place(value, to);
}

Place Builder::with_strides(int64_t value, const Dims& strides) {
  const auto& shape = values_.sizes(value);
  if (const auto* known = find_place(value, [&](const Place& it) {
        return !it.blocked && meaningful_strides(shape, it.strides) ==
                                  meaningful_strides(shape, strides);
      })) {
    return *known;
  }
  const Place from = place(value);
  const Place to{
      .ref = arena(count(shape) * item_size(values_.dtype(value))),
      .strides = strides};
  copy(value, from, to);
  set_place(value, to, /*is_best=*/false);
  return to;
}

Place Builder::strided(int64_t value) {
  const auto* known = find_plain_place(value);
  return known != nullptr ? *known : dense(value);
}

Place Builder::with_rows(int64_t value) {
  const auto& shape = values_.sizes(value);
  if (const auto* known = find_place(value, [&](const Place& it) {
        return !it.blocked &&
               (shape.empty() || shape.back() == 1 || it.strides.back() == 1);
      })) {
    return *known;
  }
  const Place known = strided(value);
  auto once = shape; // all but the last dimension may be repeated
  for (size_t i = 0; i + 1 < shape.size(); ++i) {
    once[i] = known.strides[i] == 0 ? 1 : shape[i];
  }
  if (once == shape) {
    return dense(value);
  }
  const auto bytes = item_size(values_.dtype(value));
  Place to{
      .ref = arena(count(once) * bytes), .strides = row_major_strides(once)};
  copy_as(once, bytes, known, to);
  for (size_t i = 0; i < shape.size(); ++i) {
    to.strides[i] = once[i] == shape[i] ? to.strides[i] : 0;
  }
  set_place(value, to, /*is_best=*/false);
  return to;
}

Place Builder::addressable(int64_t value) {
  const auto known = strided(value);
  return overlaps(values_.sizes(value), known.strides) ? dense(value) : known;
}

memory::desc Builder::addressable_layout(int64_t value) const {
  const auto* known = find_plain_place(value);
  return known == nullptr || overlaps(values_.sizes(value), known->strides)
             ? values_.row_major(value)
             : describe(value, *known);
}

memory::desc Builder::describe(int64_t value, const Place& place) const {
  if (place.blocked) {
    return *place.blocked;
  }
  return {
      values_.sizes(value),
      type_of(values_.dtype(value)),
      meaningful_strides(values_.sizes(value), place.strides)};
}

Ref Builder::in_layout(int64_t value, const memory::desc& layout) {
  if (const auto* known = find_place(value, [&](const Place& it) {
        return (it.blocked || !overlaps(values_.sizes(value), it.strides)) &&
               describe(value, it) == layout;
      })) {
    return known->ref;
  }
  if (const auto index = values_.constant_index(value); index >= 0) {
    return prepared(
        std::to_string(index) + ' ' + std::to_string(number_of(layout)),
        static_cast<int64_t>(layout.get_size()),
        reordered(copy_of(index), values_.row_major(value), layout));
  }
  const auto& first = place(value);
  const Place from = first.blocked ? first : addressable(value);
  const auto to = with_memory(value, {.blocked = layout});
  copy(value, from, to);
  set_place(value, to, /*is_best=*/false);
  return to.ref;
}

Place Builder::solid_blocks(int64_t value) {
  const Place& best = place(value);
  const auto padded = best.blocked->get_padded_dims();
  if (static_cast<int64_t>(best.blocked->get_size()) ==
      count(padded) * item_size(values_.dtype(value))) {
    return best;
  }
  const auto layout =
      blocked_layout(values_.sizes(value), values_.dtype(value));
  return {.ref = in_layout(value, layout), .blocked = layout};
}

Place Builder::own_memory(int64_t value) const {
  if (const auto* place = find_place(value, [&](const Place& it) {
        return buffers_.holder(it.ref).kind == BufferKind::input;
      })) {
    return *place;
  }
  const auto& places = places_[value];
  if (places.size() != 1 || places[0]->blocked ||
      buffers_.holder(places[0]->ref).kind == BufferKind::constant) {
    refuse("a write into a tensor without memory of its own");
  }
  return *places[0];
}

std::optional<Place> Builder::place_in(int64_t value, Ref whole) const {
  const auto* known = find_place(value, [&](const Place& it) {
    return !it.blocked && buffers_.have_one_holder(it.ref, whole);
  });
  return known == nullptr ? std::nullopt : std::optional(*known);
}

bool Builder::may_overlap(
    int64_t a,
    const Place& of_a,
    int64_t b,
    const Place& of_b) const {
  if (of_a.ref.buffer != of_b.ref.buffer) {
    return buffers_.have_one_holder(of_a.ref, of_b.ref);
  }
  const auto end = [&](int64_t value, const Place& place) {
    return place.ref.offset + span(values_.sizes(value), place.strides) *
                                  item_size(values_.dtype(value));
  };
  return of_a.ref.offset < end(b, of_b) && of_b.ref.offset < end(a, of_a);
}

Place Builder::with_memory(int64_t value, Place place) {
  const auto& shape = values_.sizes(value);
  const auto result = results_.find(value);
  if (!place.blocked && result != results_.end() &&
      meaningful_strides(shape, place.strides) ==
          meaningful_strides(shape, program_.outputs[result->second].strides)) {
    place.ref =
        add_buffer({.kind = BufferKind::output, .index = result->second});
  } else {
    place.ref = arena(
        place.blocked
            ? static_cast<int64_t>(place.blocked->get_size())
            : span(shape, place.strides) * item_size(values_.dtype(value)));
  }
  return place;
}

Place Builder::make_dense(int64_t value) {
  const auto slice = target(value);
  if (slice && !slice->blocked &&
      is_row_major(values_.sizes(value), slice->strides)) {
    return set_place(value, *slice);
  }
  return set_place(
      value,
      with_memory(value, {.strides = row_major_strides(values_.sizes(value))}));
}

Place Builder::make_rows(int64_t value) {
  const auto slice = target(value);
  return slice && !slice->blocked &&
                 writable_row_stride(values_.sizes(value), slice->strides)
             ? set_place(value, *slice)
             : make_dense(value);
}

Place Builder::make(int64_t value, const memory::desc& layout) {
  if (const auto slice = target(value);
      slice && describe(value, *slice) == layout) {
    return set_place(value, *slice);
  }
  if (layout == values_.row_major(value)) {
    return make_dense(value);
  }
  return set_place(
      value,
      with_memory(
          value,
          layout.get_inner_nblks() == 0 ? Place{.strides = layout.get_strides()}
                                        : Place{.blocked = layout}));
}

const Place& Builder::set_place(int64_t value, Place place) {
  return set_place(value, std::move(place), /*is_best=*/true);
}

const Place& Builder::set_place(int64_t value, Place place, bool is_best) {
  now_.places.push_back(
      {value, std::make_shared<const Place>(std::move(place)), is_best});
  add_place(now_.places.back());
  return *now_.places.back().place;
}

void Builder::add_place(const NodeBuild::At& at) {
  const auto& [value, place, is_best] = at;
  auto& places = places_[value];
  places.insert(is_best ? places.begin() : places.end(), place);
  buffers_.occupy(place->ref, value);
}

bool Builder::dies(int64_t value, const Place& place) const {
  if (values_.description().without.contains("reuse_operands")) {
    return false;
  }
  const auto read = values_.nodes()[node_]->reads();
  if (std::count(read.begin(), read.end(), value) > 1) {
    return false; // the second time may be after the first result is there
  }
  const auto& buffer = buffers_[place.ref.buffer];
  return buffer.kind == BufferKind::arena &&
         std::all_of(
             buffer.occupants.begin(),
             buffer.occupants.end(),
             // Other views of the memory may be operands of this very node.
             [&](int64_t other) {
               return values_.last_use(other) < node_ + (other == value);
             });
}

bool Builder::reuse(int64_t output, int64_t input, const Place& from) {
  // A result is copied to where it must be if it is in blocks, and made there
  // if it is not.
  if (!dies(input, from) || slices_.contains(output) ||
      (is_result(output) && !from.blocked)) {
    return false;
  }
  set_place(output, from);
  return true;
}

Ref Builder::moved(Ref from, const Number& bytes) {
  if (bytes.is_constant()) {
    return {from.buffer, from.offset + bytes.constant};
  }
  const auto& buffer = buffers_[from.buffer];
  const auto offset = sum(bytes, {from.offset});
  const auto in_holder = offset ? sum(*offset, buffer.offset) : std::nullopt;
  if (!in_holder) {
    refuse("a number beyond 64 bits");
  }
  return add_buffer(
      {.kind = BufferKind::bound,
       .index = buffers_.holder_index(from),
       .offset = *in_holder});
}

} // namespace at::native::zendnn::plan
