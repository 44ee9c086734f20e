// Softmax, pooling, sums, means, and reductions along neighbouring dimensions.
#include <torch/csrc/zendnn/plan/build/Kernel.h>
#include <torch/csrc/zendnn/plan/build/PostOps.h>
#include <torch/csrc/zendnn/plan/operators/Window.h>

#include <ATen/native/Pool.h>
#include <ATen/native/zendnn/kernels/along.h>
#include <ATen/native/zendnn/kernels/avg_pool.h>
#include <ATen/native/zendnn/kernels/max_pool.h>
#include <ATen/native/zendnn/kernels/normalization.h>
#include <ATen/native/zendnn/kernels/sum.h>
#include <adeep/abstract_types.hpp>

#include <algorithm>
#include <utility>

namespace at::native::zendnn::plan {
namespace {

using ::zendnn::algorithm;
using ::zendnn::prop_kind;

int64_t product(const Dims& sizes, int64_t first, int64_t last) {
  return count(Dims(sizes.begin() + first, sizes.begin() + last));
}

// Reads a value without gaps between its elements. Primitives are so slow with
// gaps, such as a slice has, that a copy is cheaper.
Place read_solid(Builder& builder, int64_t value) {
  if (builder.place(value).blocked) {
    return builder.solid_blocks(value);
  }
  const auto place = builder.addressable(value);
  if (is_dense(builder.values().sizes(value), place.strides)) {
    return place;
  }
  const auto layout = layout_like(builder, value, place);
  return {
      .ref = builder.in_layout(value, layout), .strides = layout.get_strides()};
}

// The neighbouring dimensions [first, last) that a reduction goes along.
std::pair<int64_t, int64_t> run_along(const Node& node, const Dims& sizes) {
  const auto rank = std::ssize(sizes);
  auto dims = node.as<attr::along>().dims;
  if (dims.empty()) {
    return {0, rank};
  }
  for (auto& dim : dims) {
    dim = wrap(dim, std::max<int64_t>(rank, 1));
  }
  const auto [first, last] = std::minmax_element(dims.begin(), dims.end());
  if (*last - *first >= std::ssize(dims)) {
    refuse(name_of(node.op) + " over dimensions that are not neighbours");
  }
  return {*first, std::min(*last + 1, rank)};
}

using AlongKernel = void (*)(const kernels::AlongArgs&);

// The largest or the smallest integers, in one thread: models look for few.
template <typename T, bool smallest>
void find_integers(const kernels::AlongArgs& args) {
  const auto* x = static_cast<const T*>(args.x);
  auto* out = static_cast<T*>(args.out);
  for (int64_t i = 0; i < args.outer * args.inner; ++i) {
    const auto* first =
        x + i / args.inner * args.dim * args.inner + i % args.inner;
    out[i] = *first;
    for (int64_t k = 1; k < args.dim; ++k) {
      const T other = first[k * args.inner];
      out[i] = smallest ? std::min(out[i], other) : std::max(out[i], other);
    }
  }
}

// Null where there is none.
AlongKernel integer_kernel(Op op, c10::ScalarType dtype) {
  const auto of = [&]<typename T>(T) -> AlongKernel {
    return op == Op::amax   ? find_integers<T, false>
           : op == Op::amin ? find_integers<T, true>
                            : nullptr;
  };
  switch (dtype) {
    case c10::ScalarType::Long:
      return of(int64_t{});
    case c10::ScalarType::Int:
      return of(int32_t{});
    case c10::ScalarType::Bool:
      return of(bool{});
    default:
      return nullptr;
  }
}

struct Pooling : Window {
  algorithm kind{};
};

Pooling pooling_of(const Values& values, const Node& node) {
  const auto& sizes = values.sizes(tensor(node, 0));
  if (sizes.size() < 3 || sizes.size() > 5) {
    refuse("a pooling of a tensor without batch and channels");
  }
  const auto spatial = sizes.size() - 2;
  Pooling p;
  p.kernel = spread(node.as<attr::pool>().kernel, spatial, 1, 1);
  if (node.op == Op::adaptive_avg_pool) {
    const auto wanted = spread(node.as<attr::pool>().sizes, spatial, 1, 1);
    for (size_t i = 0; i < spatial; ++i) {
      if (sizes[2 + i] % wanted[i] != 0) {
        refuse("an adaptive pooling with windows of different sizes");
      }
      p.kernel[i] = sizes[2 + i] / wanted[i];
    }
  }
  p.stride = node.as<attr::pool>().stride.empty()
                 ? p.kernel
                 : spread(node.as<attr::pool>().stride, spatial, 1, 1);
  p.dilation = spread(node.as<attr::pool>().dilation, spatial, 1, 1);
  p.before = p.after = spread(node.as<attr::pool>().padding, spatial, 0);
  int64_t elements = 1; // of a window; ZenDNN counts them in 32 bits
  for (size_t i = 0; i < spatial; ++i) {
    elements *= p.kernel[i];
    if (elements > kLargestArgument) {
      refuse("a pooling of windows of too many elements");
    }
    if (2 * p.before[i] > p.reach(i)) {
      refuse("a pooling of windows that lie in the padding");
    }
  }
  p.kind = node.op == Op::max_pool ? algorithm::pooling_max
           : node.op == Op::avg_pool && node.as<attr::pool>().include_pad
               ? algorithm::pooling_avg_include_padding
               : algorithm::pooling_avg_exclude_padding;
  return p;
}

// Adds a kernel that sums a value, or takes its mean, to sizes of as many
// dimensions.
template <class Args>
void add_sum(
    Builder& builder,
    const Node& node,
    const std::string& name,
    void (*kernel)(const Args&),
    Args args,
    const Place& from,
    const Dims& kept) {
  const auto& sizes = builder.values().sizes(tensor(node, 0));
  const auto to = builder.make_dense(node.output());
  args.ndim = std::ssize(sizes);
  add_kernel(
      builder,
      node,
      name,
      kernel,
      args,
      {{&Args::x, from.ref},
       {&Args::x_strides, from.strides},
       {&Args::out, to.ref},
       {&Args::out_strides,
        broadcast_strides(kept, row_major_strides(kept), sizes)},
       {&Args::sizes, sizes}},
      /*flops=*/0,
      /*otherwise=*/{},
      zendnn_reduction);
}

// The same of floating-point numbers.
void add_float_sum(
    Builder& builder,
    const Node& node,
    bool averages,
    const Place& from,
    const Dims& kept) {
  const auto input = tensor(node, 0);
  const auto summed =
      static_cast<double>(count(builder.values().sizes(input)) / count(kept));
  add_sum<kernels::SumArgs>(
      builder,
      node,
      averages ? "mean" : "sum",
      kernels::reduce_sum,
      {.scale = averages ? 1 / summed : 1,
       .dtype = kernel_type(builder.values().dtype(input))},
      from,
      kept);
}

// Whether each window is a whole row-major image.
bool is_mean_of_images(
    const Builder& builder,
    const Node& node,
    const Pooling& p,
    const Place& from) {
  const auto& in = builder.values().sizes(tensor(node, 0));
  const auto is_zero = [](int64_t size) { return size == 0; };
  return p.kind != algorithm::pooling_max && !from.blocked &&
         is_row_major(in, from.strides) &&
         p.kernel == Dims(in.begin() + 2, in.end()) &&
         std::all_of(p.before.begin(), p.before.end(), is_zero) &&
         count(builder.values().sizes(node.output())) == in[0] * in[1];
}

// Adds our kernel for row-major images and signals; returns whether it takes
// them.
bool pool_planes(
    Builder& builder,
    const Node& node,
    const Pooling& p,
    const Place& from) {
  const auto input = tensor(node, 0), output = node.output();
  const auto& in = builder.values().sizes(input);
  const auto windows = p.over(in, builder.values().sizes(output));
  const bool dilated = windows.dilation_down > 1 || windows.dilation_across > 1;
  const bool padded = windows.pad_top > 0 || windows.pad_left > 0;
  const bool is_max = p.kind == algorithm::pooling_max;
  if (from.blocked || p.kernel.size() > 2 || !is_row_major(in, from.strides) ||
      (dilated && (padded || !is_max)) || !kernels::takes_windows(windows)) {
    return false;
  }
  const auto to = builder.make_dense(output);
  const auto planes = in[0] * in[1];
  const auto dtype = kernel_type(builder.values().dtype(input));
  if (is_max) {
    using Args = kernels::MaxPoolArgs;
    add_kernel(
        builder,
        node,
        "max_pool",
        kernels::max_pool,
        {.planes = planes, .windows = windows, .dtype = dtype},
        {{&Args::x, from.ref}, {&Args::out, to.ref}});
  } else {
    using Args = kernels::AvgPoolArgs;
    add_kernel(
        builder,
        node,
        "avg_pool",
        kernels::avg_pool,
        {.planes = planes,
         .windows = windows,
         .counts_padding = p.kind == algorithm::pooling_avg_include_padding,
         .dtype = dtype},
        {{&Args::x, from.ref}, {&Args::out, to.ref}});
  }
  copy_to_slice(builder, output);
  return true;
}

} // namespace

Dims reduced_sizes(const Dims& sizes, const Dims& dims, bool keep) {
  // torch takes dimensions 0 and -1 of a scalar.
  std::vector<bool> gone(std::max<size_t>(sizes.size(), 1), dims.empty());
  for (const auto dim : dims) {
    const auto place = wrap(dim, std::ssize(gone));
    if (gone[place]) {
      refuse("a reduction that repeats a dimension");
    }
    gone[place] = true;
  }
  Dims left;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (keep || !gone[i]) {
      left.push_back(gone[i] ? 1 : sizes[i]);
    }
  }
  return left;
}

void infer_softmax(Values& values, const Node& node) {
  infer_eltwise(values, node);
}

void build_softmax(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto& sizes = builder.values().sizes(input);
  const auto rank = std::ssize(sizes);
  const auto dim = wrap(node.as<attr::softmax>().dim, rank);
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
       .log = node.as<attr::softmax>().log,
       .flush = builder.values().is_only_read_by(output, Op::matmul),
       .dtype = kernel_type(builder.values().dtype(input))},
      {{&Args::x, from.ref}, {&Args::out, to.ref}});
}

void infer_pool(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  type_of(values.dtype(input));
  const auto p = pooling_of(values, node);
  const auto& in = values.sizes(input);
  // torch's avg_pool3d has no bfloat16 and requires that the volume without
  // padding holds a window.
  const bool whole = node.op == Op::avg_pool && p.kernel.size() == 3;
  if (whole && values.dtype(input) != c10::ScalarType::Float) {
    refuse("an average over volumes in a dtype other than float32");
  }
  Dims out{in[0], in[1]};
  for (size_t i = 0; i < p.kernel.size(); ++i) {
    out.push_back(at::native::pooling_output_shape(
        in[2 + i],
        p.kernel[i],
        p.before[i],
        p.stride[i],
        p.dilation[i],
        node.as<attr::pool>().ceil));
    if (out.back() < 1 || (whole && p.kernel[i] > in[2 + i])) {
      refuse("a pooling of an image smaller than its window");
    }
  }
  values.set_type(node.output(), out, values.dtype(input));
}

void build_pool(Builder& builder, const Node& node) {
  auto p = pooling_of(builder.values(), node);
  const auto input = tensor(node, 0), output = node.output();
  const auto& in = builder.values().sizes(input);
  const auto& out = builder.values().sizes(output);
  bool beyond = false, padded = false;
  for (size_t i = 0; i < p.kernel.size(); ++i) {
    if (out[2 + i] == 1 && p.dilation[i] == 1) { // nothing counts beyond
      p.kernel[i] = std::min(p.kernel[i], in[2 + i] + 2 * p.before[i]);
    }
    const auto after =
        (out[2 + i] - 1) * p.stride[i] + p.reach(i) - in[2 + i] - p.before[i];
    beyond = beyond || after > p.after[i];
    padded = padded || p.before[i] > 0;
    p.after[i] = after;
  }
  if (beyond && p.kind == algorithm::pooling_avg_include_padding) {
    if (padded) {
      refuse("an average over windows that reach beyond the padding");
    }
    p.kind = algorithm::pooling_avg_exclude_padding; // the same without any
  }
  const auto from = read_solid(builder, input);
  if (is_mean_of_images(builder, node, p, from)) {
    add_float_sum(builder, node, /*averages=*/true, from, out);
    return copy_to_slice(builder, output);
  }
  auto gaps = p.dilation; // which ZenDNN counts from 0
  for (auto& gap : gaps) {
    --gap;
  }
  const auto source = builder.describe(input, from);
  using Run = ::zendnn::pooling_forward;
  const auto describe = [&](const memory::desc& result) {
    return Run::primitive_desc(
        adeep::engine::cpu_engine(),
        prop_kind::forward_inference,
        p.kind,
        source,
        result,
        p.stride,
        p.kernel,
        gaps,
        p.before,
        p.after,
        user_scratchpad());
  };
  std::optional<Run::primitive_desc> desc;
  auto slice = builder.target(output);
  if (slice) {
    try {
      desc = describe(builder.describe(output, *slice));
    } catch (const ::zendnn::error&) { // which does not write there
    }
    if (!desc || is_reference(desc->impl_info_str())) {
      desc.reset(); // a copy is cheaper
      slice.reset();
    }
  }
  if (!desc) {
    const memory::desc any(
        out, source.get_data_type(), memory::format_tag::any);
    desc = describe(from.blocked ? any : layout_like(builder, output, from));
  }
  const std::string implementation = desc->impl_info_str();
  if (implementation.starts_with("simple_nchw") &&
      pool_planes(builder, node, p, from)) {
    return;
  }
  if (slice) {
    builder.set_place(output, *slice);
  } else {
    builder.make(output, desc->dst_desc());
  }
  builder.add_primitive(
      node,
      Run(*desc),
      "pooling " + implementation,
      {{ZENDNN_ARG_SRC, source, from.ref},
       {ZENDNN_ARG_DST, desc->dst_desc(), builder.place(output).ref}});
  copy_to_slice(builder, output);
}

void infer_reduce(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  const auto dtype = values.dtype(input);
  const auto as = node.as<attr::reduce>().dtype;
  if (!as) {
    type_of(dtype);
  } else if (
      *as != c10::ScalarType::Long ||
      (dtype != c10::ScalarType::Long && dtype != c10::ScalarType::Bool)) {
    refuse(
        std::string("a sum of ") + c10::toString(dtype) + " as " +
        name_of(*as));
  }
  const auto out = reduced_sizes(
      values.sizes(input),
      node.as<attr::reduce>().dims,
      node.as<attr::reduce>().keep);
  values.set_type(node.output(), out, as ? c10::ScalarType::Long : dtype);
}

void build_reduce(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0);
  const auto kept = reduced_sizes(
      builder.values().sizes(input),
      node.as<attr::reduce>().dims,
      /*keep=*/true);
  const auto from = builder.strided(input);
  if (builder.values().dtype(node.output()) != c10::ScalarType::Long) {
    return add_float_sum(builder, node, node.op == Op::mean, from, kept);
  }
  const bool boolean = builder.values().dtype(input) == c10::ScalarType::Bool;
  add_sum<kernels::IntegerSumArgs>(
      builder,
      node,
      name_of(node.op),
      kernels::integer_sum,
      {.boolean = boolean},
      from,
      kept);
}

void infer_along(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  const auto dtype = values.dtype(input);
  if (integer_kernel(node.op, dtype) == nullptr) {
    type_of(dtype);
  }
  const auto& [dims, keep] = node.as<attr::along>();
  const auto& sizes = values.sizes(input);
  run_along(node, sizes);
  if (node.op == Op::argmax && dims.size() > 1) {
    refuse("argmax over several dimensions");
  }
  values.set_type(
      node.output(),
      reduced_sizes(sizes, dims, keep),
      node.op == Op::argmax ? c10::ScalarType::Long : dtype);
}

void build_along(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0);
  const auto& sizes = builder.values().sizes(input);
  const auto [first, last] = run_along(node, sizes);
  const auto of_integers =
      integer_kernel(node.op, builder.values().dtype(input));
  const auto from = builder.dense(input);
  const auto to = builder.make_dense(node.output());
  using Args = kernels::AlongArgs;
  Args args{
      .outer = product(sizes, 0, first),
      .dim = product(sizes, first, last),
      .inner = product(sizes, last, std::ssize(sizes))};
  if (of_integers == nullptr) {
    args.dtype = kernel_type(builder.values().dtype(input));
  }
  add_kernel(
      builder,
      node,
      name_of(node.op),
      of_integers != nullptr ? of_integers : along_kernel(node.op),
      args,
      {{&Args::x, from.ref}, {&Args::out, to.ref}});
}

} // namespace at::native::zendnn::plan
