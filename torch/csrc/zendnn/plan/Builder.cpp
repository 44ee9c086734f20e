#include <torch/csrc/zendnn/plan/Builder.h>
#include <torch/csrc/zendnn/plan/PostOps.h>
#include <torch/csrc/zendnn/plan/Primitive.h>

#include <ATen/native/zendnn/kernels/memory.h>
#include <adeep/abstract_types.hpp>

#include <algorithm>
#include <limits>

namespace at::native::zendnn::plan {
namespace {

constexpr int64_t kForever = std::numeric_limits<int64_t>::max();
// As many as the kernels that copy and combine tensors go through.
constexpr size_t kMostDimensions = 8;
// Their bytes, and sums of some of them, can be told in 64 bits.
constexpr int64_t kMostElements = int64_t{1} << 56;

} // namespace

Builder::Builder(
    const Description& description,
    const std::vector<Tensor>& constants,
    Packed& packed,
    Layout layout,
    std::vector<Left>& left,
    Conditions& conditions,
    double& tuning_seconds)
    : description_(description),
      constants_(constants),
      packed_(packed),
      layout_(layout),
      left_(left),
      conditions_(conditions),
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
  build_nodes();
  finish_results();
  return finish();
}

void Builder::place_inputs(
    const std::vector<InputSignature>& inputs,
    const std::vector<int64_t>& numbers) {
  size_t tensor = 0, number = 0;
  numbers_ = numbers;
  for (const auto& input : description_.inputs) {
    if (input.is_number) {
      set_number(input.value, {.factors = {{number++, 1}}});
      continue;
    }
    const auto& signature = inputs.at(tensor);
    if (!input.dtype.empty() && signature.dtype != dtype_named(input.dtype)) {
      refuse("an input that is not " + input.dtype);
    }
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

void Builder::infer() {
  std::vector<Node> nodes;
  const auto all = static_cast<int64_t>(description_.nodes.size());
  for (int64_t written = 0; written < all; ++written) {
    const auto& node = description_.nodes[written];
    std::vector<Node> parts;
    at_node(written, [&] {
      if (auto* left = find_left(left_, written)) {
        infer_by_torch(*this, node, *left);
        parts = {node};
        return;
      }
      parts = infer_fitting(*this, node);
      std::for_each(parts.begin(), parts.end(), [&](const Node& part) {
        follow_strides(part);
      });
    });
    for (auto& part : parts) {
      for (const auto output : part.outputs) {
        if (!values_[output].is_number && count(sizes(output)) == 0) {
          refuse("an empty tensor");
        }
      }
      nodes.push_back(std::move(part));
      written_.push_back(written);
    }
  }
  description_.nodes = std::move(nodes);
}

void Builder::build_nodes() {
  const auto all = static_cast<int64_t>(description_.nodes.size());
  for (node_ = 0; node_ < all; ++node_) {
    const auto& node = description_.nodes[node_];
    at_node(written_[node_], [&] {
      if (const auto* left = find_left(left_, written_[node_])) {
        build_by_torch(*this, node, *left);
      } else {
        find_operator(node.op).build(*this, node);
      }
    });
  }
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
  const auto number = unbound(operand);
  conditions_.fix(number);
  const auto value = number.at(numbers_);
  if (!value) {
    refuse("a number beyond 64 bits");
  }
  return *value;
}

Number Builder::unbound(const Operand& operand) const {
  if (operand.kind == Operand::Kind::number) {
    return {operand.index};
  }
  if (operand.kind == Operand::Kind::none ||
      !values_[operand.index].is_number) {
    refuse("a tensor where a number is wanted");
  }
  return values_[operand.index].number;
}

bool Builder::keeps_within(const Number& number, int64_t least, int64_t most)
    const {
  const auto value = number.at(numbers_);
  const bool within = value && *value >= least && *value <= most;
  if (within) {
    conditions_.keep({number, least, most});
  }
  return within;
}

const Tensor* Builder::constant(int64_t value) const {
  const auto index = values_[value].constant;
  return index < 0 ? nullptr : &constants_[index];
}

int64_t Builder::add_value() {
  values_.emplace_back();
  return static_cast<int64_t>(values_.size()) - 1;
}

void Builder::set_number(int64_t value, Number number) {
  values_[value].is_number = true;
  values_[value].number = std::move(number);
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

// ---- Steps

void Builder::touch(Ref ref) {
  for (const auto index : buffers_of(ref)) {
    auto& buffer = buffers_[index];
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
      int64_t operands = 0;
      for (const auto& argument : arguments) {
        operands += static_cast<int64_t>(argument.desc.get_size());
      }
      if (bytes > scratchpad_bound(operands)) {
        refuse(
            implementation + " wants a scratchpad of " + std::to_string(bytes) +
            " bytes for operands of " + std::to_string(operands));
      }
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

size_t Builder::choose(
    const Node& node,
    const std::string& key,
    const std::vector<Candidate>& candidates,
    const Judge& judge,
    const std::string& about) {
  const auto choice =
      plan::choose(key, candidates, tuning_seconds_, judge, about);
  for (const auto& name : choice.wrong) {
    wrong_.push_back(name + " for " + node.label);
  }
  return choice.index;
}

bool Builder::is_at_border(const Place& from, const Place& to) const {
  return buffers_[root_of(from.ref)].kind == BufferKind::input ||
         buffers_[root_of(to.ref)].kind == BufferKind::output;
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

int64_t Builder::add_buffer(Buffer buffer) {
  buffer.first = buffer.last = static_cast<int64_t>(steps_.size());
  buffers_.push_back(std::move(buffer));
  return static_cast<int64_t>(buffers_.size()) - 1;
}

std::vector<int64_t> Builder::buffers_of(Ref ref) const {
  std::vector<int64_t> found;
  for (auto index = ref.buffer; index >= 0;) {
    found.push_back(index);
    const auto& buffer = buffers_[index];
    index = buffer.kind == BufferKind::bound ? buffer.index : -1;
  }
  return found;
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
         buffer.data,
         buffer.offset});
  }
  return std::make_unique<Executable>(
      std::move(steps_),
      std::move(buffers),
      std::move(outputs_),
      std::vector<std::shared_ptr<void>>(pieces_.begin(), pieces_.end()),
      arena_bytes,
      border_copies_,
      std::move(wrong_));
}

} // namespace at::native::zendnn::plan
