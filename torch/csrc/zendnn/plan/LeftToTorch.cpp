// What torch computes in place of a plan: a table of the operators that plans
// refuse for some shapes, by torch's own functions.
#include <torch/csrc/zendnn/plan/LeftToTorch.h>
#include <torch/csrc/zendnn/plan/Operators.h>
#include <torch/csrc/zendnn/plan/PostOps.h>

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/TensorIndexing.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <new>
#include <string_view>

namespace at::native::zendnn::plan {
namespace {

// A node's operands: tensors, undefined where there is none, and numbers.
struct Operands {
  std::vector<Tensor> tensors;
  std::vector<std::optional<int64_t>> numbers;

  const Tensor& operator[](size_t index) const {
    static const Tensor none;
    return index < tensors.size() ? tensors[index] : none;
  }
  std::optional<Tensor> optional(size_t index) const {
    const auto& found = (*this)[index];
    return found.defined() ? std::optional(found) : std::nullopt;
  }
};

using Compute = Tensor (*)(const Node&, const Operands&);

// torch's operator, by its name and its first arguments; the others have their
// defaults.
Tensor call(const std::string& name, std::vector<c10::IValue> arguments) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
      ("aten::" + name).c_str(), "");
  const auto& known = op.schema().arguments();
  for (auto i = arguments.size(); i < known.size(); ++i) {
    arguments.push_back(known[i].default_value().value());
  }
  op.callBoxed(arguments);
  return arguments.front().toTensor();
}

Tensor scaled(const Tensor& x, double factor, double addend) {
  const auto product = factor == 1 ? x : at::mul(x, factor);
  return addend == 0 ? product : at::add(product, addend);
}

Tensor convolution(const Node& node, const Operands& given) {
  const auto spatial = static_cast<size_t>(given[1].dim() - 2);
  if (given[0].dim() != given[1].dim()) {
    // What is folded into the weights was of dimension 1.
    refuse("a convolution of a tensor without a batch dimension");
  }
  auto x = given[0];
  auto padding = spread(node.get(attr::convolution::padding), spatial, 0);
  if (node.attributes.contains("padding_end")) {
    const auto end =
        spread(node.get(attr::convolution::padding_end), spatial, 0);
    Dims pads; // the last dimension first
    for (size_t i = spatial; i-- > 0;) {
      pads.insert(pads.end(), {padding[i], end[i]});
      padding[i] = 0;
    }
    x = at::constant_pad_nd(x, pads);
  }
  return at::convolution(
      x,
      given[1],
      given.optional(2),
      spread(node.get(attr::convolution::stride), spatial, 1),
      padding,
      spread(node.get(attr::convolution::dilation), spatial, 1),
      node.get(attr::convolution::transposed),
      spread(node.get(attr::convolution::output_padding), spatial, 0),
      node.get(attr::convolution::groups));
}

Tensor linear(const Node& node, const Operands& given) {
  const auto made = at::linear(given[0], given[1], given.optional(2));
  const auto dtype = node.get(attr::linear::dtype);
  return dtype.empty() ? made : made.to(dtype_named(dtype));
}

// As softmax(q·kᵀ + mask)·v where the model spells it out.
Tensor
spelled_out_attention(const Node& node, const Operands& given, double scale) {
  const auto &q = given[0], &mask = given[3], &chosen = given[4];
  if (node.get(attr::attention::causal) || node.get(attr::attention::grouped) ||
      (mask.defined() && mask.scalar_type() != q.scalar_type())) {
    refuse("an attention that no model spells out");
  }
  auto scores = scaled(at::matmul(q, given[1].mT()), scale, 0);
  if (chosen.defined()) {
    scores = at::masked_fill(
        scores,
        node.get(attr::attention::fill_where) ? chosen : chosen.logical_not(),
        node.get(attr::attention::fill));
  }
  if (mask.defined()) {
    scores = at::add(scores, mask);
  }
  return at::matmul(at::softmax(scores, -1), given[2]);
}

Tensor attention(const Node& node, const Operands& given) {
  const auto stated = node.get(attr::attention::scale);
  const auto scale = stated == 0
                         ? 1 / std::sqrt(static_cast<double>(given[0].size(-1)))
                         : stated;
  Tensor made;
  if (node.get(attr::attention::additive)) {
    made = spelled_out_attention(node, given, scale);
  } else if (given[4].defined()) {
    refuse("an attention that no model spells out");
  } else {
    made = at::scaled_dot_product_attention(
        given[0],
        given[1],
        given[2],
        given.optional(3),
        /*dropout_p=*/0,
        node.get(attr::attention::causal),
        stated == 0 ? std::nullopt : std::optional(scale),
        node.get(attr::attention::grouped));
  }
  return node.get(attr::attention::swapped) ? made.transpose(1, 2).contiguous()
                                            : made;
}

Tensor gather_pairs(const Node& /*node*/, const Operands& given) {
  return given[0].index({indexing::Ellipsis, given[1], given[2]});
}

// How many spatial dimensions a window has; one number stands for all of them.
size_t spatial_of(const Dims& window, const Tensor& x) {
  return window.size() > 1
             ? window.size()
             : static_cast<size_t>(std::max<int64_t>(x.dim() - 2, 1));
}

// max_pool or avg_pool.
Tensor pool(const Node& node, const Operands& given) {
  const auto spatial = spatial_of(node.get(attr::pool::kernel), given[0]);
  std::vector<c10::IValue> arguments{
      given[0],
      spread(node.get(attr::pool::kernel), spatial, 1),
      node.get(attr::pool::stride),
      spread(node.get(attr::pool::padding), spatial, 0)};
  if (node.op == "max_pool") {
    arguments.emplace_back(spread(node.get(attr::pool::dilation), spatial, 1));
    arguments.emplace_back(node.get(attr::pool::ceil));
  } else {
    arguments.emplace_back(node.get(attr::pool::ceil));
    arguments.emplace_back(node.get(attr::pool::include_pad));
  }
  return call(node.op + std::to_string(spatial) + "d", std::move(arguments));
}

Tensor adaptive_avg_pool(const Node& node, const Operands& given) {
  const auto sizes = node.get(attr::pool::sizes);
  const auto spatial = spatial_of(sizes, given[0]);
  return call(
      node.op + std::to_string(spatial) + "d",
      {given[0], spread(sizes, spatial, 1)});
}

Tensor resample(const Node& node, const Operands& given) {
  const auto& x = given[0];
  const double scales[] = {
      node.get(attr::resample::scale_height),
      node.get(attr::resample::scale_width)};
  std::optional<double> factors[2];
  Dims sizes;
  for (const size_t i : {0, 1}) {
    if (scales[i] > 0) {
      factors[i] = scales[i];
    }
    sizes.push_back(given.numbers[1 + i].value_or(static_cast<int64_t>(
        std::floor(static_cast<double>(x.sizes()[2 + i]) * scales[i]))));
  }
  const auto algorithm = node.get(attr::resample::algorithm);
  if (algorithm == "nearest") {
    return at::upsample_nearest2d(x, sizes, factors[0], factors[1]);
  }
  if (algorithm != "linear" || x.dim() != 4) {
    refuse("a resampling that is neither nearest nor bilinear");
  }
  const bool align = node.get(attr::resample::align_corners);
  return at::upsample_bilinear2d(x, sizes, align, factors[0], factors[1]);
}

Tensor pad(const Node& node, const Operands& given) {
  Dims pads;
  for (size_t i = 1; i < given.numbers.size(); ++i) {
    pads.push_back(given.numbers[i].value());
  }
  return at::constant_pad_nd(given[0], pads, node.get(attr::pad::value));
}

// Null for an operator that is refused for its types, or only where torch
// refuses it, too.
Compute find_compute(const std::string& op) {
  static const std::unordered_map<std::string, Compute> table{
      {"convolution", convolution},
      {"linear", linear},
      {"matmul",
       [](const Node&, const Operands& given) {
         return at::matmul(given[0], given[1]);
       }},
      {"prelu",
       [](const Node&, const Operands& given) {
         return at::prelu(given[0], given[1]);
       }},
      {"attention", attention},
      {"gather_pairs", gather_pairs},
      {"pairwise_dot",
       [](const Node& node, const Operands& given) {
         const auto products = at::matmul(given[0], given[0].mT());
         return gather_pairs(node, {{products, given[1], given[2]}, {}});
       }},
      {"max_pool", pool},
      {"avg_pool", pool},
      {"adaptive_avg_pool", adaptive_avg_pool},
      {"resample", resample},
      {"pad", pad},
  };
  const auto found = table.find(op);
  return found == table.end() ? nullptr : found->second;
}

// The node with its post-ops, one after the other.
Tensor compute(const Node& node, const Operands& given) {
  auto made = find_compute(node.op)(node, given);
  for (const auto& post : node.post) {
    if (post.is_binary()) {
      made = combination_of(post.algorithm).in_torch(made, given[post.operand]);
      continue;
    }
    const auto function = functions().at(post.algorithm).in_torch;
    made =
        (function == nullptr ? scaled : function)(made, post.alpha, post.beta);
  }
  return made;
}

bool is_computed(const Node& node) {
  const auto& op = find_operator(node.op);
  return op.results != Results::number && !op.is_view;
}

bool is_of_post_op(const Node& node, size_t operand) {
  return std::any_of(
      node.post.begin(), node.post.end(), [&](const PostOp& post) {
        return post.operand == static_cast<int>(operand);
      });
}

bool is_tensor(const Values& values, const Operand& operand) {
  return operand.kind == Operand::Kind::value &&
         !values.is_number(operand.index);
}

// The node's operands, of which `find` makes the tensors.
template <typename Find>
Operands operands_of(const Values& values, const Node& node, const Find& find) {
  Operands given;
  for (const auto& operand : node.inputs) {
    const bool tensor = is_tensor(values, operand);
    given.tensors.push_back(tensor ? find(operand.index) : Tensor());
    given.numbers.push_back(
        tensor || !operand ? std::nullopt
                           : std::optional(values.number(operand)));
  }
  return given;
}

// Where a type is not as passes have assumed, what they made of the model's
// operators is not the same as those.
void check_types(const Values& values, const Node& node, const Left& left) {
  const auto dtype = values.dtype(tensor(node, 0));
  type_of(dtype);
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (is_tensor(values, node.inputs[i])) {
      const auto other = values.dtype(node.inputs[i].index);
      if (other != dtype &&
          (c10::isFloatingType(other) || is_of_post_op(node, i))) {
        refuse(left.reason);
      }
    }
  }
}

// A tensor of the value's type: its constant, or zeros.
Tensor stand_in(const Values& values, int64_t value) {
  if (const auto* constant = values.constant(value)) {
    return *constant;
  }
  const auto& sizes = values.sizes(value);
  auto strides = values.strides(value);
  if (span(sizes, strides) > 4 * count(sizes)) {
    strides = row_major_strides(sizes); // strides can span any memory
  }
  auto made = at::detail::empty_strided_cpu(
      sizes, strides, values.dtype(value), /*pin_memory=*/false);
  std::memset(made.mutable_data_ptr(), 0, made.storage().nbytes());
  return made;
}

// torch has no type of its own for what its allocator of the CPU throws.
bool is_about_memory(const c10::Error& error) {
  return std::string_view(error.what_without_backtrace())
             .find("DefaultCPUAllocator") != std::string_view::npos;
}

bool is_channels_last(const Dims& sizes, const Dims& strides) {
  return sizes.size() >= 4 && sizes.size() <= 5 &&
         !is_row_major(sizes, strides) &&
         strides == channels_last_strides(sizes);
}

memory::desc channels_last(const Dims& sizes, c10::ScalarType dtype) {
  return {sizes, type_of(dtype), channels_last_strides(sizes)};
}

// A value in a plan's memory.
struct View {
  Place place;
  Dims sizes;
  c10::ScalarType dtype;

  Tensor in(const Frame& frame) const {
    return at::from_blob(frame.at(place.ref), sizes, place.strides, dtype);
  }
};

// As torch would have it: how a tensor lies decides which kernel torch takes,
// and so how it rounds.
View as_in_torch(Builder& builder, int64_t value) {
  const auto& sizes = builder.sizes(value);
  const auto& strides = builder.strides(value);
  const auto dtype = builder.dtype(value);
  if (is_channels_last(sizes, strides)) {
    const auto ref = builder.in_layout(value, channels_last(sizes, dtype));
    return {{.ref = ref, .strides = strides}, sizes, dtype};
  }
  return {
      is_row_major(sizes, strides) ? builder.dense(value)
                                   : builder.strided(value),
      sizes,
      dtype};
}

} // namespace

Left* find_left(std::vector<Left>& left, int64_t node) {
  const auto found =
      std::find_if(left.begin(), left.end(), [&](const Left& it) {
        return it.node == node;
      });
  return found == left.end() ? nullptr : &*found;
}

void leave(
    const Description& region,
    const RefusedNode& refused,
    std::vector<Left>& left) {
  const auto& nodes = region.nodes;
  const auto first =
      left.empty() ? std::string(refused.what()) : left.front().reason;
  if (find_left(left, refused.node) != nullptr ||
      find_compute(nodes[refused.node].op) == nullptr) {
    refuse(first);
  }
  left.push_back({.node = refused.node, .reason = refused.what()});
  const auto computed = std::count_if(nodes.begin(), nodes.end(), is_computed);
  if (2 * static_cast<int64_t>(left.size()) > computed) {
    refuse(first);
  }
}

void infer_by_torch(Values& values, const Node& node, Left& left) {
  if (left.dtype == c10::ScalarType::Undefined) {
    check_types(values, node, left);
    const BelowEverything below;
    try {
      const auto given = operands_of(
          values, node, [&](int64_t value) { return stand_in(values, value); });
      const auto made = compute(node, given);
      left.sizes = made.sizes().vec();
      left.strides = made.strides().vec();
      left.dtype = made.scalar_type();
      const auto start = std::chrono::steady_clock::now();
      compute(node, given);
      left.milliseconds = std::chrono::duration<double, std::milli>(
                              std::chrono::steady_clock::now() - start)
                              .count();
    } catch (const c10::Error& error) {
      if (is_about_memory(error)) {
        throw std::bad_alloc();
      }
      refuse(left.reason); // the model's own operators say what is wrong
    }
  }
  type_of(left.dtype);
  values.set_type(node.output(), left.sizes, left.dtype, left.strides);
}

void build_by_torch(Builder& builder, const Node& node, const Left& left) {
  std::vector<std::pair<size_t, View>> views; // by operand
  std::vector<Ref> touched;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (is_tensor(builder, node.inputs[i])) {
      views.emplace_back(i, as_in_torch(builder, node.inputs[i].index));
      touched.push_back(views.back().second.place.ref);
    }
  }
  const auto output = node.output();
  const View result{
      is_channels_last(left.sizes, left.strides)
          ? builder.make(output, channels_last(left.sizes, left.dtype))
          : builder.make_dense(output),
      left.sizes,
      left.dtype};
  touched.push_back(result.place.ref);
  const auto numbers =
      operands_of(builder, node, [](int64_t) { return Tensor(); });
  builder.add_kernel(
      node,
      "torch " + node.op,
      touched,
      [node, views, numbers, result](const Frame& frame) {
        const BelowEverything below;
        auto given = numbers;
        for (const auto& [operand, view] : views) {
          given.tensors[operand] = view.in(frame);
        }
        result.in(frame).copy_(compute(node, given));
      });
}

} // namespace at::native::zendnn::plan
