// Where values are: in the layout that a reader wants, and where they are made.
#include <torch/csrc/zendnn/plan/Builder.h>

#include <algorithm>

namespace at::native::zendnn::plan {
const Place& Builder::place(int64_t value) const {
  if (places_[value].empty()) {
    refuse("a value that nothing has made");
  }
  return places_[value].front();
}

Place Builder::dense(int64_t value) {
  Place to{.ref = {}, .strides = row_major_strides(sizes(value))};
  for (const auto& known : places_[value]) {
    if (!known.blocked && is_row_major(sizes(value), known.strides)) {
      to.ref = known.ref; // dimensions of 1 may have any stride there
      return to;
    }
  }
  const Place from = place(value);
  const auto bytes = count(sizes(value)) * item_size(dtype(value));
  if (const auto index = values_[value].constant; index >= 0) {
    to.ref = prepared(
        "dense " + std::to_string(index), bytes, copy_of(constants_[index]));
  } else {
    to.ref = {arena(bytes), 0};
    copy(value, from, to);
  }
  set_place(value, to);
  return to;
}

Place Builder::strided(int64_t value) {
  for (const auto& known : places_[value]) {
    if (!known.blocked) {
      return known;
    }
  }
  return dense(value);
}

Place Builder::with_rows(int64_t value) {
  const auto known = strided(value);
  const auto& shape = sizes(value);
  return shape.empty() || shape.back() == 1 || known.strides.back() == 1
             ? known
             : dense(value);
}

Place Builder::addressable(int64_t value) {
  const auto known = strided(value);
  return overlaps(sizes(value), known.strides) ? dense(value) : known;
}

memory::desc Builder::addressable_layout(int64_t value) const {
  const auto& places = places_[value];
  const auto plain = std::find_if(
      places.begin(), places.end(), [](const auto& at) { return !at.blocked; });
  return plain == places.end() || overlaps(sizes(value), plain->strides)
             ? row_major(value)
             : describe(value, *plain);
}

memory::desc Builder::describe(int64_t value, const Place& place) const {
  if (place.blocked) {
    return place.desc;
  }
  return {
      sizes(value),
      type_of(dtype(value)),
      meaningful_strides(sizes(value), place.strides)};
}

Ref Builder::in_layout(int64_t value, const memory::desc& layout) {
  for (const auto& known : places_[value]) {
    if (known.blocked ? known.desc == layout
                      : (!overlaps(sizes(value), known.strides) &&
                         describe(value, known) == layout)) {
      return known.ref;
    }
  }
  if (const auto index = values_[value].constant; index >= 0) {
    const auto own = own_place(value);
    return overlaps(sizes(value), own.strides)
               ? pack(
                     "dense " + std::to_string(index),
                     copy_of(constants_[index]),
                     row_major(value),
                     layout)
               : packed(value, describe(value, own), layout);
  }
  const auto& first = place(value);
  const Place from = first.blocked ? first : addressable(value);
  const Place to{
      .ref = {arena(static_cast<int64_t>(layout.get_size())), 0},
      .desc = layout,
      .blocked = true};
  copy(value, from, to);
  places_[value].push_back(to);
  buffers_.occupy(to.ref, value);
  return to.ref;
}

Place Builder::solid_blocks(int64_t value) {
  const Place& best = place(value);
  const auto padded = best.desc.get_padded_dims();
  if (static_cast<int64_t>(best.desc.get_size()) ==
      count(padded) * item_size(dtype(value))) {
    return best;
  }
  const auto layout = blocked_layout(sizes(value), dtype(value));
  return {.ref = in_layout(value, layout), .desc = layout, .blocked = true};
}

Place Builder::own_memory(int64_t value) const {
  const auto& places = places_[value];
  const auto given =
      std::find_if(places.begin(), places.end(), [&](const Place& known) {
        return buffers_.holder(known.ref).kind == BufferKind::input;
      });
  const bool one =
      places.size() == 1 && !places[0].blocked && values_[value].constant < 0;
  if (given == places.end() && !one) {
    refuse("a write into a tensor without memory of its own");
  }
  return given == places.end() ? places[0] : *given;
}

std::optional<Place> Builder::place_in(int64_t value, Ref whole) const {
  for (const auto& known : places_[value]) {
    if (!known.blocked && buffers_.have_one_holder(known.ref, whole)) {
      return known;
    }
  }
  return std::nullopt;
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
    return place.ref.offset +
           span(sizes(value), place.strides) * item_size(dtype(value));
  };
  return of_a.ref.offset < end(b, of_b) && of_b.ref.offset < end(a, of_a);
}

bool Builder::is_result(int64_t value) const {
  return results_.contains(value);
}

Place Builder::make_dense(int64_t value) {
  if (const auto slice = target(value);
      slice && !slice->blocked && is_row_major(sizes(value), slice->strides)) {
    set_place(value, *slice);
    return *slice;
  }
  Place made{.ref = {}, .strides = row_major_strides(sizes(value))};
  if (is_result(value) &&
      is_row_major(sizes(value), outputs_[results_[value]].strides)) {
    made.ref = {
        add_buffer({.kind = BufferKind::output, .index = results_[value]}), 0};
  } else {
    made.ref = {arena(count(sizes(value)) * item_size(dtype(value))), 0};
  }
  set_place(value, made);
  return made;
}

Place Builder::make_rows(int64_t value) {
  if (const auto slice = target(value);
      slice && !slice->blocked &&
      writable_row_stride(sizes(value), slice->strides)) {
    set_place(value, *slice);
    return *slice;
  }
  return make_dense(value);
}

Place Builder::make(int64_t value, const memory::desc& layout) {
  if (const auto slice = target(value);
      slice && describe(value, *slice) == layout) {
    set_place(value, *slice);
    return *slice;
  }
  if (layout == row_major(value)) {
    return make_dense(value);
  }
  Place made{.ref = {}, .desc = layout, .blocked = true};
  if (layout.get_inner_nblks() == 0) {
    made.blocked = false;
    made.strides = layout.get_strides();
    made.desc = {};
  }
  if (!made.blocked && is_result(value) &&
      outputs_[results_[value]].strides == made.strides) {
    made.ref = {
        add_buffer({.kind = BufferKind::output, .index = results_[value]}), 0};
  } else {
    made.ref = {arena(static_cast<int64_t>(layout.get_size())), 0};
  }
  set_place(value, made);
  return made;
}

void Builder::set_place(int64_t value, Place place) {
  buffers_.occupy(place.ref, value);
  auto& places = places_[value];
  places.insert(places.begin(), std::move(place));
}

bool Builder::dies(int64_t value, const Place& place) const {
  if (description_.without.contains("reuse_operands")) {
    return false;
  }
  const auto& operands = description_.nodes[node_].inputs;
  const auto reads =
      std::count_if(operands.begin(), operands.end(), [&](const auto& operand) {
        return operand.kind == Operand::Kind::value && operand.index == value;
      });
  if (reads > 1) {
    return false; // the second time may be after the first result is there
  }
  const auto& buffer = buffers_[place.ref.buffer];
  return buffer.kind == BufferKind::arena &&
         std::all_of(
             buffer.occupants.begin(),
             buffer.occupants.end(),
             // Other views of the memory may be operands of this very node.
             [&](int64_t other) {
               return values_[other].last_use < node_ + (other == value);
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
  auto offset = bytes;
  offset.constant += from.offset;
  return {
      add_buffer(
          {.kind = BufferKind::bound,
           .index = from.buffer,
           .offset = std::move(offset)}),
      0};
}

Ref Builder::scratch(int64_t bytes) {
  return bytes > 0 ? Ref{arena(bytes), 0} : Ref{};
}

} // namespace at::native::zendnn::plan
