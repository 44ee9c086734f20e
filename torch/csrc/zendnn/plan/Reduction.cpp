// Softmax, normalisation, pooling, sums, means and argmax.
#include <torch/csrc/zendnn/plan/Kernel.h>
#include <torch/csrc/zendnn/plan/PostOps.h>

#include <ATen/native/zendnn/kernels/argmax.h>
#include <ATen/native/zendnn/kernels/normalization.h>
#include <ATen/native/zendnn/kernels/sum.h>
#include <adeep/abstract_types.hpp>

#include <algorithm>
#include <numeric>

namespace at::native::zendnn::plan {
namespace {

using ::zendnn::algorithm;
using ::zendnn::prop_kind;

int64_t product(const Dims& sizes, int64_t first, int64_t last) {
  return count(Dims(sizes.begin() + first, sizes.begin() + last));
}

// A value without gaps between its elements, such as a slice has: primitives
// are so slow with those that a copy is cheaper.
std::pair<memory::desc, Ref> read_solid(Builder& builder, int64_t value) {
  if (builder.place(value).blocked) {
    const auto place = builder.solid_blocks(value);
    return {place.desc, place.ref};
  }
  const auto& sizes = builder.sizes(value);
  const auto place = builder.addressable(value);
  if (is_dense(sizes, place.strides)) {
    return {builder.describe(value, place), place.ref};
  }
  const auto layout = sizes.size() > 2 && place.strides[1] == 1
                          ? memory::desc(
                                sizes,
                                type_of(builder.dtype(value)),
                                channels_last_strides(sizes))
                          : builder.row_major(value);
  return {layout, builder.in_layout(value, layout)};
}

struct Pooling {
  algorithm kind;
  Dims kernel, stride, dilation, before, after;
};

Pooling pooling_of(const Values& values, const Node& node) {
  const auto& sizes = values.sizes(tensor(node, 0));
  if (sizes.size() < 3 || sizes.size() > 5) {
    refuse("a pooling of a tensor without batch and channels");
  }
  const auto spatial = sizes.size() - 2;
  Pooling p;
  p.kernel = spread(node.get(attr::pool::kernel), spatial, 1, 1);
  p.stride = node.get(attr::pool::stride).empty()
                 ? p.kernel
                 : spread(node.get(attr::pool::stride), spatial, 1, 1);
  p.dilation = spread(node.get(attr::pool::dilation), spatial, 1, 1);
  p.before = p.after = spread(node.get(attr::pool::padding), spatial, 0);
  int64_t elements = 1; // of a window, which ZenDNN goes through and counts
  for (size_t i = 0; i < spatial; ++i) {
    elements *= p.kernel[i];
    if (elements > kLargestArgument) {
      refuse("a pooling of windows of too many elements");
    }
    const auto reach = p.dilation[i] * (p.kernel[i] - 1) + 1;
    if (p.before[i] < 0 || 2 * p.before[i] > reach) {
      refuse("a pooling of windows that lie in the padding");
    }
  }
  p.kind = node.op == "max_pool" ? algorithm::pooling_max
           : node.get(attr::pool::include_pad)
               ? algorithm::pooling_avg_include_padding
               : algorithm::pooling_avg_exclude_padding;
  return p;
}

void add_pooling(Builder& builder, const Node& node, Pooling p) {
  const auto input = tensor(node, 0), output = node.output();
  const auto& in = builder.sizes(input);
  const auto& out = builder.sizes(output);
  const auto [source, from] = read_solid(builder, input);
  bool beyond = false, padded = false;
  for (size_t i = 0; i < p.kernel.size(); ++i) {
    if (out[2 + i] == 1 && p.dilation[i] == 1) { // nothing counts beyond
      p.kernel[i] = std::min(p.kernel[i], in[2 + i] + 2 * p.before[i]);
    }
    const auto reach = p.dilation[i] * (p.kernel[i] - 1) + 1;
    const auto after =
        (out[2 + i] - 1) * p.stride[i] + reach - in[2 + i] - p.before[i];
    beyond = beyond || after > p.after[i];
    padded = padded || p.before[i] > 0;
    p.after[i] = after;
    p.dilation[i] -= 1;
  }
  if (beyond && p.kind == algorithm::pooling_avg_include_padding) {
    if (padded) {
      refuse("an average over windows that reach beyond the padding");
    }
    p.kind = algorithm::pooling_avg_exclude_padding; // the same without any
  }
  const auto attempt = [&, source = source, from = from](
                           const memory::desc& result,
                           const std::optional<Place>& aimed) -> bool {
    const ::zendnn::pooling_forward::primitive_desc desc(
        adeep::engine::cpu_engine(),
        prop_kind::forward_inference,
        p.kind,
        source,
        result,
        p.stride,
        p.kernel,
        p.dilation,
        p.before,
        p.after,
        user_scratchpad());
    if (aimed && is_reference(desc.impl_info_str())) {
      return false; // a copy is cheaper
    }
    Place to;
    if (aimed) {
      to = *aimed;
      builder.set_place(output, to);
    } else {
      to = builder.make(output, desc.dst_desc());
    }
    builder.add_primitive(
        node,
        ::zendnn::pooling_forward(desc),
        std::string("pooling ") + desc.impl_info_str(),
        {{ZENDNN_ARG_SRC, source, from},
         {ZENDNN_ARG_DST, desc.dst_desc(), to.ref}});
    return true;
  };
  const auto type = type_of(builder.dtype(input));
  if (const auto slice = builder.target(output)) {
    try {
      if (attempt(builder.describe(output, *slice), slice)) {
        return;
      }
    } catch (const ::zendnn::error&) { // not into this place
    }
  }
  attempt(
      source.get_inner_nblks() > 0
          ? memory::desc(out, type, memory::format_tag::any)
      : is_row_major(in, source.get_strides())
          ? builder.row_major(output)
          : memory::desc(out, type, channels_last_strides(out)),
      std::nullopt);
  copy_to_slice(builder, output);
}

// The dimensions that are reduced: all where none is named.
Dims reduced_dims(const Dims& sizes, Dims dims) {
  const auto rank = static_cast<int64_t>(sizes.size());
  if (dims.empty()) {
    dims.resize(sizes.size());
    std::iota(dims.begin(), dims.end(), 0);
  }
  for (auto& dim : dims) {
    dim = wrap(
        dim, std::max<int64_t>(rank, 1)); // torch allows 0 and -1 for a number
  }
  std::sort(dims.begin(), dims.end());
  if (std::adjacent_find(dims.begin(), dims.end()) != dims.end()) {
    refuse("a reduction that repeats a dimension");
  }
  if (rank == 0) {
    dims.clear();
  }
  return dims;
}

Dims reduced_sizes(const Dims& sizes, const Dims& dims, bool keep) {
  const auto gone = reduced_dims(sizes, dims);
  Dims out;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!std::binary_search(gone.begin(), gone.end(), i)) {
      out.push_back(sizes[i]);
    } else if (keep) {
      out.push_back(1);
    }
  }
  return out;
}

} // namespace

void infer_softmax(Values& values, const Node& node) {
  infer_eltwise(values, node);
}

void build_softmax(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto& sizes = builder.sizes(input);
  const auto rank = static_cast<int64_t>(sizes.size());
  const auto dim = wrap(node.get(attr::softmax::dim), rank);
  const auto from = builder.dense(input);
  const auto to = builder.make_over(output, input, from);
  using Args = kernels::SoftmaxArgs;
  add_kernel(
      builder,
      node,
      "softmax",
      kernels::softmax,
      {.outer = product(sizes, 0, dim),
       .dim = sizes[dim],
       .inner = product(sizes, dim + 1, rank),
       .log = node.get(attr::softmax::log),
       .flush = builder.is_only_read_by(output, "matmul"),
       .dtype = kernel_type(builder.dtype(input))},
      {{&Args::x, from.ref}, {&Args::out, to.ref}});
}

void infer_layer_norm(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  const auto& sizes = values.sizes(input);
  const auto dims = node.get(attr::layer_norm::dims);
  const auto rank = static_cast<int64_t>(sizes.size());
  type_of(values.dtype(input));
  if (dims < 1 || dims > rank) {
    refuse("a normalisation over dimensions that are not there");
  }
  const auto columns = product(sizes, rank - dims, rank);
  const auto wanted = node.get(attr::layer_norm::sizes);
  if (!wanted.empty() &&
      !std::equal(
          wanted.begin(), wanted.end(), sizes.end() - dims, sizes.end())) {
    refuse("a normalisation over other sizes");
  }
  for (const size_t i : {1, 2}) {
    if (has(node, i)) {
      const auto factor = tensor(node, i);
      type_of(values.dtype(factor));
      if (count(values.sizes(factor)) != columns) {
        refuse("a normalisation whose weights have another size");
      }
    }
  }
  // The kernel reads both as one type.
  if (has(node, 1) && has(node, 2) &&
      values.dtype(tensor(node, 1)) != values.dtype(tensor(node, 2))) {
    refuse("a normalisation whose weight and bias differ in dtype");
  }
  if (has(node, 3) && (values.sizes(tensor(node, 3)) != sizes ||
                       values.dtype(tensor(node, 3)) != values.dtype(input))) {
    refuse("a normalisation of a sum that broadcasts");
  }
  if (node.attributes.contains("dtype") &&
      dtype_named(node.get(attr::layer_norm::dtype)) != values.dtype(input)) {
    refuse("a normalisation that converts");
  }
  for (const auto output : node.outputs) {
    values.set_type(output, sizes, values.dtype(input));
  }
}

void build_layer_norm(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto& sizes = builder.sizes(input);
  const auto rank = static_cast<int64_t>(sizes.size());
  const auto columns =
      product(sizes, rank - node.get(attr::layer_norm::dims), rank);
  const auto from = builder.dense(input);
  const auto operand = [&](size_t index) {
    return has(node, index) ? builder.dense(tensor(node, index)).ref : Ref{};
  };
  const auto weight = operand(1), bias = operand(2), residual = operand(3);
  const auto to = builder.make_over(output, input, from);
  const auto sum =
      node.outputs.size() > 1 ? builder.make_dense(node.outputs[1]).ref : Ref{};
  const auto factor = tensor(node, has(node, 1) ? 1 : has(node, 2) ? 2 : 0);
  using Args = kernels::NormArgs;
  add_kernel(
      builder,
      node,
      residual ? node.op + " with residual" : node.op,
      node.op == "rms_norm" ? kernels::rms_norm : kernels::layer_norm,
      {.rows = count(sizes) / columns,
       .cols = columns,
       .eps = static_cast<float>(node.get(attr::layer_norm::eps)),
       .dtype = kernel_type(builder.dtype(input)),
       .weight_dtype = kernel_type(builder.dtype(factor))},
      {{&Args::x, from.ref},
       {&Args::residual, residual},
       {&Args::weight, weight},
       {&Args::bias, bias},
       {&Args::out, to.ref},
       {&Args::sum_out, sum}});
}

void infer_pool(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  const auto p = pooling_of(values, node);
  const auto& in = values.sizes(input);
  type_of(values.dtype(input));
  Dims out{in[0], in[1]};
  const bool ceil = node.get(attr::pool::ceil);
  for (size_t i = 0; i < p.kernel.size(); ++i) {
    const auto reach = p.dilation[i] * (p.kernel[i] - 1) + 1;
    const auto room =
        in[2 + i] + 2 * p.before[i] - reach + (ceil ? p.stride[i] - 1 : 0);
    // torch's avg_pool3d wants an image, without padding, to hold a window.
    const bool whole = node.op == "avg_pool" && p.kernel.size() == 3;
    if (room < 0 || (whole && p.kernel[i] > in[2 + i])) {
      refuse("a pooling of an image smaller than its window");
    }
    auto size = room / p.stride[i] + 1;
    // The last window must start inside the image or its left padding.
    if (ceil && (size - 1) * p.stride[i] >= in[2 + i] + p.before[i]) {
      --size;
    }
    out.push_back(size);
  }
  values.set_type(node.output(), out, values.dtype(input));
}

void build_pool(Builder& builder, const Node& node) {
  add_pooling(builder, node, pooling_of(builder, node));
}

void infer_adaptive_pool(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  const auto& in = values.sizes(input);
  type_of(values.dtype(input));
  if (in.size() < 3 || in.size() > 5) {
    refuse("a pooling of a tensor without batch and channels");
  }
  const auto wanted =
      spread(node.get(attr::adaptive_pool::sizes), in.size() - 2, 1, 1);
  Dims out{in[0], in[1]};
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (in[2 + i] % wanted[i] != 0) {
      refuse("an adaptive pooling with windows of different sizes");
    }
    out.push_back(wanted[i]);
  }
  values.set_type(node.output(), out, values.dtype(input));
}

void build_adaptive_pool(Builder& builder, const Node& node) {
  const auto& in = builder.sizes(tensor(node, 0));
  const auto& out = builder.sizes(node.output());
  Pooling p;
  p.kind = algorithm::pooling_avg_exclude_padding;
  for (size_t i = 2; i < in.size(); ++i) {
    p.kernel.push_back(in[i] / out[i]);
    p.dilation.push_back(1);
    p.before.push_back(0);
    p.after.push_back(0);
  }
  p.stride = p.kernel;
  add_pooling(builder, node, p);
}

void infer_reduce(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  type_of(values.dtype(input));
  const auto out = reduced_sizes(
      values.sizes(input),
      node.get(attr::reduce::dims),
      node.get(attr::reduce::keep));
  values.set_type(node.output(), out, values.dtype(input));
}

void build_reduce(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto& sizes = builder.sizes(input);
  const auto gone = reduced_dims(sizes, node.get(attr::reduce::dims));
  const auto from = builder.strided(input);
  const auto to = builder.make_dense(output);
  // Strides of the result over the operand's dimensions: 0 sums.
  Dims kept = sizes;
  int64_t summed = 1;
  for (const auto dim : gone) {
    summed *= sizes[dim];
    kept[dim] = 1;
  }
  auto strides = row_major_strides(kept);
  for (const auto dim : gone) {
    strides[dim] = 0;
  }
  const double scale = node.op == "mean" ? 1. / static_cast<double>(summed) : 1;
  using Args = kernels::SumArgs;
  add_kernel(
      builder,
      node,
      node.op,
      kernels::reduce_sum,
      {.ndim = static_cast<int64_t>(sizes.size()),
       .scale = scale,
       .dtype = kernel_type(builder.dtype(input))},
      {{&Args::x, from.ref},
       {&Args::x_strides, from.strides},
       {&Args::out, to.ref},
       {&Args::out_strides, strides},
       {&Args::sizes, sizes}});
}

void infer_argmax(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  type_of(values.dtype(input));
  const auto dims = node.get(attr::argmax::dims);
  if (dims.size() > 1) {
    refuse("an argmax over several dimensions");
  }
  const auto& sizes = values.sizes(input);
  values.set_type(
      node.output(),
      reduced_sizes(sizes, dims, node.get(attr::argmax::keep)),
      c10::ScalarType::Long);
}

void build_argmax(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto& sizes = builder.sizes(input);
  const auto rank = static_cast<int64_t>(sizes.size());
  const auto dims = node.get(attr::argmax::dims);
  const auto first =
      dims.empty() ? 0 : wrap(dims[0], std::max<int64_t>(rank, 1));
  const auto last = dims.empty() ? rank : std::min(first + 1, rank);
  const auto from = builder.dense(input);
  const auto to = builder.make_dense(output);
  using Args = kernels::ArgmaxArgs;
  add_kernel(
      builder,
      node,
      "argmax",
      kernels::argmax,
      {.outer = product(sizes, 0, first),
       .dim = product(sizes, first, last),
       .inner = product(sizes, last, rank),
       .dtype = kernel_type(builder.dtype(input))},
      {{&Args::x, from.ref}, {&Args::out, to.ref}});
}

} // namespace at::native::zendnn::plan
