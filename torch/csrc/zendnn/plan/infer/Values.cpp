#include <torch/csrc/zendnn/plan/describe/Operators.h>

#include <ATen/ExpandUtils.h>
#include <ATen/native/zendnn/Operands.h>
#include <c10/core/MemoryFormat.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace at::native::zendnn::plan {
namespace {

constexpr int64_t kForever = std::numeric_limits<int64_t>::max();
// The kernels that copy and combine tensors take no more.
constexpr size_t kMostDimensions = 8;
// Byte counts, and sums of a few, fit in 64 bits.
constexpr int64_t kMostElements = int64_t{1} << 56;

// A number that a call gives sets conditions each time.
bool is_fixed(const Value& value) {
  return !value.is_number || value.number.is_constant();
}

// Whether nodes that read one do the same with the other.
bool are_alike(const Value& a, const Value& b) {
  return a.is_number == b.is_number && is_fixed(a) &&
         (a.is_number ? a.number == b.number
                      : static_cast<const TensorSpec&>(a) == b);
}

} // namespace

Values::Values(
    const Description& description,
    std::shared_ptr<ConstantStore> constants,
    const Call& call,
    Conditions& conditions,
    Inferred* before)
    : description_(description),
      store_(std::move(constants)),
      constants_(store_->tensors()),
      values_(before ? std::move(before->values) : std::vector<Value>{}),
      unchanged_(description.values),
      conditions_(conditions),
      numbers_(call.numbers) {
  values_.resize(description.values); // without parts of nodes taken apart
  if (before == nullptr) {
    check_operators(description_);
  }
  infer_inputs(call.inputs, before != nullptr);
  if (before == nullptr) {
    infer_constants();
    find_joined();
  }
  for (const auto value : description_.constants) {
    unchanged_[value] = before != nullptr;
  }
  infer_nodes(before);
  find_uses();
}

void Values::infer_inputs(const std::vector<TensorSpec>& inputs, bool again) {
  size_t tensor = 0, number = 0;
  for (const auto& input : description_.inputs) {
    if (input.is_number) {
      set_number(input.value, {.factors = {{number++, 1}}});
      continue;
    }
    const auto& spec = inputs.at(tensor++);
    if (input.dtype && spec.dtype != *input.dtype) {
      refuse("an input that is not " + name_of(*input.dtype));
    }
    unchanged_[input.value] = again && spec == values_[input.value];
    if (!unchanged_[input.value]) {
      set_type(input.value, spec.sizes, spec.dtype, spec.strides);
    }
  }
}

void Values::infer_constants() {
  for (size_t i = 0; i < constants_.size(); ++i) {
    const auto value = description_.constants.at(i);
    if (!is_plain(constants_[i])) {
      refuse("a constant that is not a dense CPU tensor");
    }
    const auto spec = spec_of(constants_[i]);
    set_type(value, spec.sizes, spec.dtype, spec.strides);
    values_[value].constant = static_cast<int64_t>(i);
  }
}

// A concatenation of weights for linear layers only is packed from its parts,
// since the whole would be a copy of the weights.
void Values::find_joined() {
  std::map<int64_t, int64_t> reads, reads_as_weight;
  for (const auto& node : description_.nodes) {
    for (const auto value : node.reads()) {
      ++reads[value];
    }
    if (node.op == Op::linear && !node.fallback) {
      ++reads_as_weight[tensor(node, 1)];
    }
  }
  for (const auto value : description_.outputs) {
    ++reads[value];
  }
  for (const auto& node : description_.nodes) {
    if (node.op != Op::cat || node.as<attr::cat>().dim != 0 ||
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

void Values::infer_nodes(const Inferred* before) {
  const auto all = static_cast<int64_t>(description_.nodes.size());
  size_t known = 0; // of the nodes before
  for (int64_t written = 0; written < all; ++written) {
    const auto first = known;
    while (before != nullptr && known < before->nodes.size() &&
           before->written[known] == written) {
      ++known;
    }
    const auto& node = description_.nodes[written];
    const auto read = node.reads();
    if (known - first == 1 && !node.fallback &&
        std::all_of(read.begin(), read.end(), [&](int64_t value) {
          return unchanged_[value];
        })) {
      for (const auto output : node.outputs) {
        unchanged_[output] = is_fixed(values_[output]);
      }
      nodes_.push_back(before->nodes[first]);
    } else {
      c10::SmallVector<Value, 1> known_values;
      for (const auto output : node.outputs) {
        auto& value = values_[output];
        known_values.push_back(std::exchange(value, {}));
        value.joined = known_values.back().joined;
      }
      at_node(written, [&] { infer_node(node); });
      for (size_t i = 0; before != nullptr && i < node.outputs.size(); ++i) {
        const auto output = node.outputs[i];
        unchanged_[output] = are_alike(known_values[i], values_[output]);
      }
    }
    written_.resize(nodes_.size(), written);
  }
}

void Values::infer_node(const Node& node) {
  // The description owns it.
  const std::shared_ptr<const Node> written(std::shared_ptr<void>(), &node);
  if (node.fallback) {
    infer_by_torch(*this, node);
    nodes_.push_back(written);
  } else if (infer_whole(*this, node)) {
    follow_strides(node);
    nodes_.push_back(written);
  } else {
    for (auto& part : infer_parts(*this, node)) {
      follow_strides(part);
      nodes_.push_back(std::make_shared<const Node>(std::move(part)));
    }
  }
}

void Values::find_uses() {
  for (auto& value : values_) {
    value.last_use = -1; // it may come from before
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    for (const auto value : nodes_[i]->reads()) {
      values_[value].last_use = static_cast<int64_t>(i);
    }
  }
  for (const auto value : description_.outputs) {
    values_[value].last_use = kForever;
  }
}

bool Values::is_only_read_by(int64_t value, Op op) const {
  return values_[value].last_use != kForever &&
         std::all_of(nodes_.begin(), nodes_.end(), [&](const auto& node) {
           const auto read = node->reads();
           return node->op == op ||
                  !std::count(read.begin(), read.end(), value);
         });
}

// ---- Types

int64_t Values::number(const Operand& operand) const {
  const auto number = unbound(operand);
  conditions_.fix(number);
  const auto value = number.at(numbers_);
  if (!value) {
    refuse("a number beyond 64 bits");
  }
  return *value;
}

Number Values::unbound(const Operand& operand) const {
  if (operand.kind == Operand::Kind::number) {
    return {operand.index};
  }
  if (operand.kind == Operand::Kind::none ||
      !values_[operand.index].is_number) {
    refuse("a tensor where a number is wanted");
  }
  return values_[operand.index].number;
}

bool Values::keeps_within(const Number& number, int64_t least, int64_t most)
    const {
  const Conditions::Range range{number, least, most};
  const bool within = range.holds(numbers_);
  if (within) {
    conditions_.keep(range);
  }
  return within;
}

const Tensor* Values::constant(int64_t value) const {
  const auto index = values_[value].constant;
  if (index < 0) {
    return nullptr;
  }
  if (!pins_.contains(index)) {
    pins_.emplace(index, store_->pin(index));
  }
  return &constants_[index];
}

int64_t Values::add_value() {
  values_.emplace_back();
  return static_cast<int64_t>(values_.size()) - 1;
}

void Values::set_number(int64_t value, Number number) {
  values_[value].is_number = true;
  values_[value].number = std::move(number);
}

void Values::set_type(
    int64_t value,
    Dims sizes,
    c10::ScalarType dtype,
    std::optional<Dims> strides) {
  if (sizes.size() > kMostDimensions) {
    refuse("a tensor with " + std::to_string(sizes.size()) + " dimensions");
  }
  int64_t elements = 1;
  for (const auto size : sizes) {
    if (size == 0) {
      refuse("an empty tensor");
    }
    if (size < 0) {
      refuse("a tensor of a size of " + std::to_string(size));
    }
    if (size > kMostElements / elements) {
      refuse("a tensor of more elements than there can be");
    }
    elements *= size;
  }
  auto& typed = values_[value];
  typed.strides = strides ? std::move(*strides) : row_major_strides(sizes);
  typed.sizes = std::move(sizes);
  typed.dtype = dtype;
}

memory::desc Values::row_major(int64_t value) const {
  return {sizes(value), type_of(dtype(value)), row_major_strides(sizes(value))};
}

// ---- Strides

bool Values::is_channels_last(int64_t value) const {
  const auto& [sizes, strides, dtype] = spec(value);
  return sizes.size() == 4   ? c10::is_channels_last_strides_2d(sizes, strides)
         : sizes.size() == 5 ? c10::is_channels_last_strides_3d(sizes, strides)
                             : false;
}

Dims Values::result_strides(int64_t value) const {
  const auto& [shape, strides, dtype] = spec(value);
  if (is_channels_last(value)) {
    return channels_last_strides(shape);
  }
  if (is_row_major(shape, strides)) {
    return row_major_strides(shape);
  }
  // Strides of dimensions of size one, and gaps, are of no use to anyone, but
  // torch keeps gaps where it replaces a slice.
  const bool keeps_gaps =
      std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& node) {
        return node->output() == value && row_of(node->op).keeps_gaps;
      });
  return keeps_gaps || is_dense(shape, strides) ? strides
                                                : row_major_strides(shape);
}

bool Values::is_always_row_major(const Node& node) const {
  if (node.op == Op::where) {
    return node.as<attr::where>().filled;
  }
  if (node.op == Op::roll) {
    // torch concatenates two parts of each dimension. One that is empty never
    // has channels last, so neither has the result.
    const auto& [shifts, dims] = node.as<attr::roll>();
    const auto& shape = sizes(tensor(node, 0));
    for (size_t i = 0; i < dims.size(); ++i) {
      if (shifts[i] % shape[wrap(dims[i], std::ssize(shape))] == 0) {
        return true;
      }
    }
  }
  return false;
}

void Values::follow_strides(const Node& node) {
  const auto follows = row_of(node.op).follows;
  if (follows == Follows::nothing || is_always_row_major(node)) {
    return; // row-major, or a view that has its strides
  }
  auto& result = values_[node.output()];
  const auto read = node.reads();
  if (follows == Follows::elements) {
    std::vector<std::pair<Dims, Dims>> operands;
    for (const auto value : read) {
      // Larger ones are operands of nodes that were taken off this one.
      if (at::is_expandable_to(sizes(value), result.sizes)) {
        operands.emplace_back(sizes(value), strides(value));
      }
    }
    result.strides = combined_strides(operands);
    return;
  }
  const auto last = [&](int64_t value) { return is_channels_last(value); };
  bool channels_last = false;
  if (follows == Follows::all) {
    channels_last = std::all_of(read.begin(), read.end(), last);
  } else if (follows == Follows::input) {
    channels_last = last(read[0]);
  } else { // input_or_weight
    // Not when something else of this size was added: it might come first.
    channels_last =
        (last(read[0]) || last(read[1])) &&
        std::all_of(read.begin() + 2, read.end(), [&](int64_t value) {
          return sizes(value) != result.sizes || last(value);
        });
  }
  if (channels_last && result.sizes.size() >= 4) {
    result.strides = channels_last_strides(result.sizes);
  }
}

} // namespace at::native::zendnn::plan
