#include <torch/csrc/zendnn/plan/Builder.h>
#include <torch/csrc/zendnn/plan/PostOps.h>

#include <ATen/native/zendnn/kernels/memory.h>
#include <c10/core/MemoryFormat.h>
#include <adeep/abstract_types.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <tuple>
#include <unordered_map>

namespace at::native::zendnn::plan {
namespace {

using BufferKind = Executable::Buffer::Kind;

constexpr int64_t kForever = std::numeric_limits<int64_t>::max();
// As many as the kernels that copy and combine tensors go through.
constexpr size_t kMostDimensions = 8;
// Their bytes, and sums of some of them, can be told in 64 bits.
constexpr int64_t kMostElements = int64_t{1} << 56;

// Which operands' strides torch's results take over: with `elements`, all those
// that are combined element by element.
enum class Follows : uint8_t { input, input_or_weight, all, elements };

const std::unordered_map<std::string, Follows> kFollowed{
    {"convolution", Follows::input_or_weight},
    {"max_pool", Follows::input},
    {"avg_pool", Follows::input},
    {"adaptive_avg_pool", Follows::input},
    {"batch_norm", Follows::input},
    {"group_norm", Follows::input},
    {"resample", Follows::input},
    {"rms_norm", Follows::input},
    {"roll", Follows::input},
    {"pad", Follows::input},
    {"cat", Follows::all},
    {"eltwise", Follows::elements},
    {"prelu", Follows::elements},
    {"binary", Follows::elements},
    {"where", Follows::elements},
    {"nonzero", Follows::elements},
    {"to", Follows::elements},
    {"to_like", Follows::elements},
};

void reorder_now(
    const memory::desc& from,
    void* source,
    const memory::desc& to,
    void* target) {
  const auto& engine = adeep::engine::cpu_engine();
  memory read(from, engine, source), written(to, engine, target);
  auto& stream = adeep::stream::default_stream();
  ::zendnn::reorder(read, written).execute(stream, read, written);
}

// What the kernel that copies takes; not complex128.
void check_copied(int64_t item_bytes) {
  if (item_bytes > 8) {
    refuse("a copy of items of " + std::to_string(item_bytes) + " bytes");
  }
}

// Writes a constant's elements in row-major order.
Fill copy_of(const Tensor& constant) {
  check_copied(item_size(constant.scalar_type()));
  return [constant](void* memory) {
    const auto strides = row_major_strides(constant.sizes().vec());
    kernels::copy_strided(
        {.src = constant.const_data_ptr(),
         .src_strides = constant.strides().data(),
         .dst = memory,
         .dst_strides = strides.data(),
         .sizes = constant.sizes().data(),
         .ndim = constant.dim(),
         .itemsize = item_size(constant.scalar_type())});
  };
}

// Writes contiguous constants one behind the other.
Fill joint_copy_of(std::vector<Tensor> constants) {
  return [constants = std::move(constants)](void* memory) {
    auto* next = static_cast<char*>(memory);
    for (const auto& constant : constants) {
      std::memcpy(next, constant.const_data_ptr(), constant.nbytes());
      next += constant.nbytes();
    }
  };
}

} // namespace

// ---- Helpers
// ---------------------------------------------------------------------

::zendnn::primitive_attr user_scratchpad() {
  ::zendnn::primitive_attr attributes;
  attributes.set_scratchpad_mode(::zendnn::scratchpad_mode::user);
  return attributes;
}

int64_t wrap(int64_t dim, int64_t rank) {
  const auto wrapped = dim < 0 ? dim + rank : dim;
  if (wrapped < 0 || wrapped >= rank) {
    refuse(
        "dimension " + std::to_string(dim) + " of a tensor with " +
        std::to_string(rank));
  }
  return wrapped;
}

// ---- Builder
// ------------------------------------------------------------------------

Builder::Builder(
    const Description& description,
    const std::vector<Tensor>& constants,
    Packed& packed,
    Layout layout,
    double& tuning_seconds)
    : description_(description),
      constants_(constants),
      packed_(packed),
      layout_(layout),
      tuning_seconds_(tuning_seconds),
      values_(description.values) {}

std::unique_ptr<Executable> Builder::build(
    const std::vector<InputSignature>& inputs,
    const std::vector<int64_t>& numbers) {
  check_operators(description_);
  place_inputs(inputs, numbers);
  place_constants();
  find_joined();
  infer();
  find_uses();
  for (const auto value : description_.outputs) {
    results_.emplace(value, static_cast<int64_t>(outputs_.size()));
    outputs_.push_back({sizes(value), result_strides(value), dtype(value)});
  }
  find_slices();
  for (node_ = 0; node_ < static_cast<int64_t>(description_.nodes.size());
       ++node_) {
    const auto& node = description_.nodes[node_];
    find_operator(node.op).build(*this, node);
  }
  finish_results();
  return finish();
}

void Builder::place_inputs(
    const std::vector<InputSignature>& inputs,
    const std::vector<int64_t>& numbers) {
  size_t tensor = 0, number = 0;
  for (const auto& input : description_.inputs) {
    if (input.is_number) {
      set_number(input.value, numbers.at(number++));
      continue;
    }
    const auto& signature = inputs.at(tensor);
    set_type(input.value, signature.sizes, signature.dtype, signature.strides);
    if (count(signature.sizes) == 0) {
      refuse("an empty tensor");
    }
    const auto buffer = add_buffer(
        {.kind = BufferKind::input, .index = static_cast<int64_t>(tensor)});
    set_place(input.value, {.ref = {buffer, 0}, .strides = signature.strides});
    ++tensor;
  }
}

void Builder::place_constants() {
  for (size_t i = 0; i < constants_.size(); ++i) {
    const auto value = description_.constants.at(i);
    const auto& constant = constants_[i];
    if (constant.layout() != c10::kStrided || !constant.device().is_cpu()) {
      refuse("a constant that is not a dense CPU tensor");
    }
    values_[value].constant = static_cast<int64_t>(i);
    const auto strides = constant.strides().vec();
    set_type(value, constant.sizes().vec(), constant.scalar_type(), strides);
    const auto buffer = add_buffer(
        {.kind = BufferKind::constant,
         .data =
             static_cast<char*>(const_cast<void*>(constant.const_data_ptr()))});
    set_place(value, {.ref = {buffer, 0}, .strides = strides});
  }
}

// Joining what linear layers read makes copies that are as large as the
// weights; packing each when it is wanted keeps none of them.
void Builder::find_joined() {
  std::map<int64_t, int64_t> reads, reads_as_weight;
  for (const auto& node : description_.nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i].kind == Operand::Kind::value) {
        ++reads[node.inputs[i].index];
        reads_as_weight[node.inputs[i].index] += node.op == "linear" && i == 1;
      }
    }
  }
  for (const auto value : description_.outputs) {
    ++reads[value];
  }
  for (const auto& node : description_.nodes) {
    if (node.op != "cat" || node.integer("dim", 0) != 0 ||
        reads[node.output()] != reads_as_weight[node.output()]) {
      continue;
    }
    std::vector<int64_t> parts;
    for (const auto& operand : node.inputs) {
      const auto part = values_[operand.index].constant;
      if (part >= 0 && constants_[part].dim() == 2 &&
          constants_[part].is_contiguous()) {
        parts.push_back(part);
      }
    }
    if (parts.size() == node.inputs.size()) {
      values_[node.output()].joined = std::move(parts);
    }
  }
}

// ---- What torch's own operators would give

bool Builder::is_channels_last(int64_t value) const {
  const auto& [sizes, strides] =
      std::tie(values_[value].sizes, values_[value].strides);
  return sizes.size() == 4   ? c10::is_channels_last_strides_2d(sizes, strides)
         : sizes.size() == 5 ? c10::is_channels_last_strides_3d(sizes, strides)
                             : false;
}

Dims Builder::result_strides(int64_t value) const {
  const auto& [shape, strides] =
      std::tie(values_[value].sizes, values_[value].strides);
  if (is_channels_last(value)) {
    return channels_last_strides(shape);
  }
  // Strides of dimensions of size one, and gaps, are of no use to anyone.
  return is_dense(shape, strides) && !is_row_major(shape, strides)
             ? strides
             : row_major_strides(shape);
}

void Builder::follow_strides(const Node& node) {
  const auto found = kFollowed.find(node.op);
  if (found == kFollowed.end() || node.integer("filled", 0) != 0) {
    return; // row-major, or a view that has its strides
  }
  auto& result = values_[node.output()];
  std::vector<int64_t> read;
  for (const auto& operand : node.inputs) {
    if (operand.kind == Operand::Kind::value) {
      read.push_back(operand.index);
    }
  }
  const auto whole = [&](int64_t value) {
    return sizes(value) == result.sizes;
  };
  const auto last = [&](int64_t value) { return is_channels_last(value); };
  bool channels_last = false;
  switch (found->second) {
    case Follows::input:
      channels_last = last(read[0]);
      break;
    case Follows::input_or_weight:
      // Not when something else of this size was added: it might come first.
      channels_last =
          (last(read[0]) || last(read[1])) &&
          std::all_of(read.begin() + 2, read.end(), [&](int64_t value) {
            return !whole(value) || last(value);
          });
      break;
    case Follows::all:
      channels_last = std::all_of(read.begin(), read.end(), last);
      break;
    case Follows::elements: {
      std::vector<std::pair<Dims, Dims>> operands;
      for (const auto value : read) {
        operands.emplace_back(sizes(value), strides(value));
      }
      result.strides = combined_strides(result.sizes, operands);
      return;
    }
  }
  if (channels_last && result.sizes.size() >= 4) {
    result.strides = channels_last_strides(result.sizes);
  }
}

void Builder::infer() {
  std::vector<Node> nodes;
  for (const auto& node : description_.nodes) {
    for (auto& part : infer_fitting(*this, node)) {
      follow_strides(part);
      for (const auto output : part.outputs) {
        if (!values_[output].is_number && count(sizes(output)) == 0) {
          refuse("an empty tensor");
        }
      }
      nodes.push_back(std::move(part));
    }
  }
  description_.nodes = std::move(nodes);
}

void Builder::find_uses() {
  for (size_t i = 0; i < description_.nodes.size(); ++i) {
    for (const auto& operand : description_.nodes[i].inputs) {
      if (operand.kind == Operand::Kind::value) {
        values_[operand.index].last_use = static_cast<int64_t>(i);
      }
    }
  }
  for (const auto value : description_.outputs) {
    values_[value].last_use = kForever;
  }
}

// ---- Values

int64_t Builder::number(const Operand& operand) const {
  if (operand.kind == Operand::Kind::number) {
    return operand.index;
  }
  if (operand.kind == Operand::Kind::none ||
      !values_[operand.index].is_number) {
    refuse("a tensor where a number is wanted");
  }
  return values_[operand.index].number;
}

const Tensor* Builder::constant(int64_t value) const {
  const auto index = values_[value].constant;
  return index < 0 ? nullptr : &constants_[index];
}

int64_t Builder::add_value() {
  values_.emplace_back();
  return static_cast<int64_t>(values_.size()) - 1;
}

void Builder::set_number(int64_t value, int64_t number) {
  values_[value].is_number = true;
  values_[value].number = number;
}

void Builder::set_type(
    int64_t value,
    Dims sizes,
    c10::ScalarType dtype,
    const std::optional<Dims>& strides) {
  if (sizes.size() > kMostDimensions) {
    refuse("a tensor with " + std::to_string(sizes.size()) + " dimensions");
  }
  int64_t elements = 1;
  for (const auto size : sizes) {
    if (size < 0) {
      refuse("a tensor of a size of " + std::to_string(size));
    }
    const auto most = kMostElements / elements;
    if (size > most) {
      refuse("a tensor of more elements than there can be");
    }
    elements *= std::max<int64_t>(size, 1);
  }
  values_[value].strides = strides.value_or(row_major_strides(sizes));
  values_[value].sizes = std::move(sizes);
  values_[value].dtype = dtype;
}

memory::desc Builder::row_major(int64_t value) const {
  return {sizes(value), type_of(dtype(value)), row_major_strides(sizes(value))};
}

// ---- Reading

const Place& Builder::place(int64_t value) const {
  if (values_[value].places.empty()) {
    refuse("a value that nothing has made");
  }
  return values_[value].places.front();
}

Place Builder::dense(int64_t value) {
  for (const auto& known : values_[value].places) {
    if (!known.blocked && is_row_major(sizes(value), known.strides)) {
      return known;
    }
  }
  const Place from = place(value);
  Place to{.ref = {}, .strides = row_major_strides(sizes(value))};
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
  for (const auto& known : values_[value].places) {
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
  const auto& places = values_[value].places;
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
  for (const auto& known : values_[value].places) {
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
  values_[value].places.push_back(to);
  buffers_[to.ref.buffer].occupants.insert(value);
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

// ---- Writing

bool Builder::is_result(int64_t value) const {
  return results_.contains(value);
}

bool Builder::is_only_read_by(int64_t value, const std::string& op) const {
  return !is_result(value) &&
         std::all_of(
             description_.nodes.begin(),
             description_.nodes.end(),
             [&](const Node& node) {
               return node.op == op ||
                      std::none_of(
                          node.inputs.begin(),
                          node.inputs.end(),
                          [&](const Operand& operand) {
                            return operand.kind == Operand::Kind::value &&
                                   operand.index == value;
                          });
             });
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
      slice && !slice->blocked && row_stride(sizes(value), slice->strides)) {
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
  buffers_[place.ref.buffer].occupants.insert(value);
  auto& places = values_[value].places;
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

Ref Builder::scratch(int64_t bytes) {
  return bytes > 0 ? Ref{arena(bytes), 0} : Ref{};
}

// ---- Steps

void Builder::touch(Ref ref) {
  if (ref) {
    auto& buffer = buffers_[ref.buffer];
    buffer.last = static_cast<int64_t>(steps_.size());
    buffer.first = std::min(buffer.first, buffer.last);
  }
}

void Builder::add_primitive(
    const Node& node,
    const ::zendnn::primitive& primitive,
    std::string implementation,
    std::vector<Step::Argument> arguments,
    double flops) {
  zendnn_memory_desc_t wanted = nullptr;
  if (zendnn_memory_desc_clone(
          &wanted,
          zendnn_primitive_desc_query_md(
              primitive.get_primitive_desc(), zendnn_query_scratchpad_md, 0)) ==
      zendnn_success) {
    const memory::desc scratchpad(wanted);
    if (const auto bytes = static_cast<int64_t>(scratchpad.get_size())) {
      arguments.push_back({ZENDNN_ARG_SCRATCHPAD, scratchpad, scratch(bytes)});
    }
  }
  for (const auto& argument : arguments) {
    touch(argument.ref);
  }
  Step step;
  step.label = node.label;
  step.implementation = std::move(implementation);
  step.flops = flops;
  step.primitive = primitive;
  step.arguments = std::move(arguments);
  steps_.push_back(std::move(step));
}

void Builder::add_kernel(
    const Node& node,
    std::string implementation,
    const std::vector<Ref>& touched,
    std::function<void(const Frame&)> kernel,
    double flops) {
  for (const auto ref : touched) {
    touch(ref);
  }
  Step step;
  step.label = node.label;
  step.implementation = std::move(implementation);
  step.flops = flops;
  step.kernel = std::move(kernel);
  steps_.push_back(std::move(step));
}

bool Builder::is_at_border(const Place& from, const Place& to) const {
  return buffers_[from.ref.buffer].kind == BufferKind::input ||
         buffers_[to.ref.buffer].kind == BufferKind::output;
}

void Builder::copy(int64_t value, const Place& from, const Place& to) {
  Node node;
  node.label = "reorder";
  if (from.blocked || to.blocked) {
    border_copies_ += is_at_border(from, to);
    const auto source = describe(value, from), target = describe(value, to);
    const auto& engine = adeep::engine::cpu_engine();
    const ::zendnn::reorder::primitive_desc reorder(
        engine, source, engine, target, user_scratchpad());
    add_primitive(
        node,
        ::zendnn::reorder(reorder),
        std::string("reorder ") + reorder.impl_info_str(),
        {{ZENDNN_ARG_FROM, source, from.ref}, {ZENDNN_ARG_TO, target, to.ref}});
    return;
  }
  copy_as(sizes(value), item_size(dtype(value)), from, to);
}

void Builder::copy_as(
    const Dims& shape,
    int64_t item_bytes,
    const Place& from,
    const Place& to) {
  check_copied(item_bytes);
  border_copies_ += is_at_border(from, to);
  Node node;
  node.label = "reorder";
  add_kernel(
      node,
      "copy",
      {from.ref, to.ref},
      [from, to, shape, item_bytes](const Frame& frame) {
        kernels::copy_strided(
            {.src = frame.at(from.ref),
             .src_strides = from.strides.data(),
             .dst = frame.at(to.ref),
             .dst_strides = to.strides.data(),
             .sizes = shape.data(),
             .ndim = static_cast<int64_t>(shape.size()),
             .itemsize = item_bytes});
      });
}

// Nothing goes behind the place that a constant came in.
const Place& Builder::own_place(int64_t constant) const {
  return values_[constant].places.back();
}

Ref Builder::packed(
    int64_t value,
    const memory::desc& from,
    const memory::desc& to) {
  if (is_joined(value)) {
    std::string name = "joined";
    std::vector<Tensor> parts;
    for (const auto part : values_[value].joined) {
      name += ' ' + std::to_string(part);
      parts.push_back(constants_[part]);
    }
    return pack(name, joint_copy_of(std::move(parts)), from, to);
  }
  const auto own = own_place(value).ref;
  if (from == to) {
    return own;
  }
  return prepared(
      packed_key(std::to_string(values_[value].constant), from, to),
      static_cast<int64_t>(to.get_size()),
      [from, to, data = buffers_[own.buffer].data](void* memory) {
        reorder_now(from, data, to, memory);
      });
}

Ref Builder::pack(
    const std::string& name,
    Fill copy,
    const memory::desc& from,
    const memory::desc& to) {
  if (from != to) {
    copy = [from, to, copy = std::move(copy)](void* memory) {
      const auto whole = allocate(static_cast<int64_t>(from.get_size()));
      copy(whole.get());
      reorder_now(from, whole.get(), to, memory);
    };
  }
  return prepared(
      packed_key(name, from, to),
      static_cast<int64_t>(to.get_size()),
      std::move(copy));
}

std::string Builder::packed_key(
    const std::string& name,
    const memory::desc& from,
    const memory::desc& to) {
  return name + ' ' + std::to_string(packed_.number_of(from)) + ' ' +
         std::to_string(packed_.number_of(to));
}

Ref Builder::prepared(const std::string& key, int64_t bytes, Fill fill) {
  const auto& piece =
      pieces_.emplace_back(packed_.get(key, bytes, std::move(fill)));
  return {
      add_buffer(
          {.kind = BufferKind::constant,
           .data = static_cast<char*>(piece->memory())}),
      0};
}

int64_t Builder::add_buffer(Buffer buffer) {
  buffer.first = buffer.last = static_cast<int64_t>(steps_.size());
  buffers_.push_back(std::move(buffer));
  return static_cast<int64_t>(buffers_.size()) - 1;
}

int64_t Builder::arena(int64_t bytes) {
  return add_buffer({.kind = BufferKind::arena, .bytes = bytes});
}

void Builder::finish_results() {
  for (size_t i = 0; i < description_.outputs.size(); ++i) {
    const auto value = description_.outputs[i];
    const auto index = static_cast<int64_t>(i);
    const auto& places = values_[value].places;
    const bool there =
        std::any_of(places.begin(), places.end(), [&](const Place& known) {
          const auto& buffer = buffers_[known.ref.buffer];
          return buffer.kind == BufferKind::output && buffer.index == index;
        });
    if (!there) {
      const Place from = place(value);
      const Place to{
          .ref = {add_buffer({.kind = BufferKind::output, .index = index}), 0},
          .strides = outputs_[i].strides};
      copy(value, from, to);
    }
  }
}

std::unique_ptr<Executable> Builder::finish() {
  Packed::fill(pieces_);
  std::vector<Lifetime> lifetimes;
  for (const auto& buffer : buffers_) {
    if (buffer.kind == BufferKind::arena) {
      lifetimes.push_back(
          description_.without.contains("share_memory")
              ? Lifetime{buffer.bytes, 0, static_cast<int64_t>(steps_.size())}
              : Lifetime{buffer.bytes, buffer.first, buffer.last});
    }
  }
  const auto arena_bytes = lay_out(lifetimes);
  std::vector<Executable::Buffer> buffers;
  size_t next = 0;
  for (const auto& buffer : buffers_) {
    buffers.push_back(
        {buffer.kind,
         buffer.kind == BufferKind::arena ? lifetimes[next++].offset
                                          : buffer.index,
         buffer.data});
  }
  return std::make_unique<Executable>(
      std::move(steps_),
      std::move(buffers),
      std::move(outputs_),
      std::vector<std::shared_ptr<void>>(pieces_.begin(), pieces_.end()),
      arena_bytes,
      border_copies_);
}

} // namespace at::native::zendnn::plan
