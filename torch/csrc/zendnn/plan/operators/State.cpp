// Writes into what a region is given, such as a cache of keys and values.
#include <torch/csrc/zendnn/plan/build/Kernel.h>
#include <torch/csrc/zendnn/plan/operators/State.h>

#include <ATen/native/zendnn/kernels/memory.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace at::native::zendnn::plan {
namespace {

// The sizes of what is written: those of the target, or of some of its rows.
Dims written_sizes(const Values& values, const Node& node) {
  auto sizes = values.sizes(tensor(node, 1));
  if (has(node, 3)) {
    const auto& rows = values.sizes(tensor(node, 3));
    if (rows.size() != 1 || sizes.empty() ||
        values.dtype(tensor(node, 3)) != c10::ScalarType::Long) {
      refuse("a write into rows that no list of int64 names");
    }
    sizes[wrap(
        node.as<attr::write>().dim, static_cast<int64_t>(sizes.size()))] =
        rows[0];
  }
  return sizes;
}

// The value that is written, with its strides over the sizes that it fills.
Place source_of(Builder& builder, const Node& node, const Place& to) {
  const auto value = tensor(node, 2);
  if (builder.may_overlap(value, builder.strided(value), tensor(node, 1), to)) {
    refuse("a write of what it overwrites");
  }
  return broadcast_place(builder, value, written_sizes(builder.values(), node));
}

// The whole, whose memory stays where it is, and the target in it.
std::pair<Place, Place> places_of(Builder& builder, const Node& node) {
  const auto whole = tensor(node, 0), target = tensor(node, 1);
  const auto own = builder.own_memory(whole);
  const auto to = builder.place_in(target, own.ref);
  if (!to || overlaps(builder.values().sizes(target), to->strides)) {
    refuse("a write into a copy, or to several elements in one place");
  }
  return {own, *to};
}

// Wraps the index of a row; raises torch's IndexError where it is out of
// bounds.
int64_t row_of(int64_t index, int64_t dim, int64_t size, bool wraps) {
  const auto row = wraps && index < 0 ? index + size : index;
  TORCH_CHECK_INDEX(
      row >= 0 && row < size,
      wraps ? "" : "index_copy_(): ",
      "index ",
      index,
      " is out of bounds for dimension ",
      dim,
      " with size ",
      size);
  return row;
}

} // namespace

std::set<size_t> states_of(const Description& region) {
  std::map<int64_t, size_t> sources; // by value, views and written ones too
  size_t tensors = 0;
  for (const auto& input : region.inputs) {
    if (!input.is_number) {
      sources.emplace(input.value, tensors++);
    }
  }
  std::set<size_t> states;
  for (const auto& node : region.nodes) {
    const auto& op = row_of(node.op);
    if (node.inputs.empty() ||
        node.inputs.front().kind != Operand::Kind::value) {
      continue;
    }
    const auto whole = sources.find(node.inputs.front().index);
    if (whole == sources.end() || !(op.is_view || op.writes)) {
      continue;
    }
    for (const auto output : node.outputs) {
      sources.emplace(output, whole->second);
    }
    if (op.writes) {
      states.insert(whole->second);
    }
  }
  return states;
}

bool are_writable(const std::set<size_t>& states, const Tensors& tensors) {
  return c10::InferenceMode::is_enabled() ||
         std::none_of(states.begin(), states.end(), [&](size_t state) {
           return tensors[state].is_inference();
         });
}

bool are_apart(const std::set<size_t>& states, const Tensors& tensors) {
  const auto range = [](const Tensor& tensor) {
    const auto* const first = static_cast<const char*>(tensor.const_data_ptr());
    return std::pair(
        first,
        first + span(tensor.sizes().vec(), tensor.strides().vec()) *
                    static_cast<int64_t>(tensor.itemsize()));
  };
  return std::all_of(states.begin(), states.end(), [&](size_t state) {
    const auto [begin, end] = range(tensors[state]);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto [first, last] = range(tensors[i]);
      if (i != state && first < end && begin < last) {
        return false;
      }
    }
    return true;
  });
}

void infer_write(Values& values, const Node& node) {
  const auto whole = tensor(node, 0), value = tensor(node, 2);
  const auto sizes = written_sizes(values, node);
  if (values.dtype(value) != values.dtype(whole) ||
      values.dtype(value) != values.dtype(tensor(node, 1))) {
    refuse("a write of another type");
  }
  if (broadcast(values.sizes(value), sizes) != sizes) {
    refuse("a write of other sizes");
  }
  values.set_type(
      node.output(),
      values.sizes(whole),
      values.dtype(whole),
      values.strides(whole));
}

void build_write(Builder& builder, const Node& node) {
  const auto [own, to] = places_of(builder, node);
  const auto from = source_of(builder, node, to);
  const auto bytes = item_size(builder.values().dtype(tensor(node, 0)));
  builder.set_place(node.output(), own);
  if (!has(node, 3)) {
    builder.copy_as(written_sizes(builder.values(), node), bytes, from, to);
    return;
  }
  const auto rows = builder.dense(tensor(node, 3));
  const auto& target = builder.values().sizes(tensor(node, 1));
  const auto dim =
      wrap(node.as<attr::write>().dim, static_cast<int64_t>(target.size()));
  auto sizes = written_sizes(builder.values(), node);
  check_copied(bytes);
  builder.add_kernel(
      node,
      "copy rows",
      {from.ref, to.ref, rows.ref},
      [from = from,
       to = to,
       rows,
       bytes,
       dim,
       size = target[dim],
       count = std::exchange(sizes[dim], 1),
       sizes,
       wraps = node.as<attr::write>().wraps](const Frame& frame) {
        const auto* const index = frame.at<int64_t>(rows.ref);
        for (int64_t i = 0; i < count; ++i) {
          row_of(index[i], dim, size, wraps); // before anything is written
        }
        for (int64_t i = 0; i < count; ++i) {
          kernels::copy_strided(
              {.src = frame.at<char>(from.ref) + i * from.strides[dim] * bytes,
               .src_strides = from.strides.data(),
               .dst =
                   frame.at<char>(to.ref) +
                   row_of(index[i], dim, size, wraps) * to.strides[dim] * bytes,
               .dst_strides = to.strides.data(),
               .sizes = sizes.data(),
               .ndim = static_cast<int64_t>(sizes.size()),
               .itemsize = bytes});
        }
      });
}

} // namespace at::native::zendnn::plan
