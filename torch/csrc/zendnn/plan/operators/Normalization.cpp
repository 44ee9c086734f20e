// Normalisation: of trailing dimensions, of groups of channels, and of each
// channel by statistics that are known.
#include <torch/csrc/zendnn/plan/build/Kernel.h>
#include <torch/csrc/zendnn/plan/build/PostOps.h>

#include <ATen/native/zendnn/kernels/batch_norm.h>
#include <ATen/native/zendnn/kernels/group_norm.h>
#include <ATen/native/zendnn/kernels/normalization.h>

namespace at::native::zendnn::plan {
namespace {

using kernels::ChannelLayout;

// A place as a kernel of channels goes through it.
struct Site {
  Place place;
  ChannelLayout layout;
  int64_t batch, step; // to the next image; channel, pixel or block
};

// Returns nothing where pixels are unevenly apart, or neither pixels nor
// channels lie side by side.
std::optional<Site>
site_of(const Builder& builder, int64_t value, const Place& place) {
  const auto& sizes = builder.values().sizes(value);
  if (place.blocked) {
    if (sizes.size() < 3) {
      return std::nullopt;
    }
    const auto strides = place.blocked->get_strides();
    const auto whole = strides[0] / strides[1] * channel_block();
    return *place.blocked ==
                   blocked_layout(sizes, builder.values().dtype(value), whole)
               ? std::optional(
                     Site{place, ChannelLayout::blocks, strides[0], strides[1]})
               : std::nullopt;
  }
  const auto& strides = place.strides;
  const auto pixel = even_stride(sizes, strides, 2, sizes.size());
  if (pixel && sizes[1] > 1 && strides[1] == 1) {
    return Site{place, ChannelLayout::last, strides[0], *pixel};
  }
  if (pixel == 1) {
    return Site{place, ChannelLayout::planes, strides[0], strides[1]};
  }
  return std::nullopt;
}

// Reads the operand of a kernel that takes these layouts, and perhaps blocks.
Site read_channels(Builder& builder, const Node& node, bool blocks) {
  const auto value = tensor(node, 0);
  if (builder.place(value).blocked && blocks) {
    if (const auto site = site_of(builder, value, builder.place(value))) {
      return *site;
    }
  }
  const auto site = site_of(builder, value, builder.addressable(value));
  return site ? *site : *site_of(builder, value, builder.dense(value));
}

// Places its result in the same layout: in the concatenation that it is a part
// of, over the operand, or anew.
Site write_channels(Builder& builder, const Node& node, const Site& from) {
  const auto output = node.output();
  if (const auto target = builder.target(output)) {
    const auto site = site_of(builder, output, *target);
    if (site && site->layout == from.layout) {
      builder.set_place(output, *target);
      return *site;
    }
  }
  if (builder.reuse(output, tensor(node, 0), from.place)) {
    return from;
  }
  const auto layout = layout_like(builder, output, from.place);
  return *site_of(builder, output, builder.make(output, layout));
}

// The arguments that both kernels of channels have.
template <class Args>
Args args_of(
    const Builder& builder,
    const Node& node,
    const Site& from,
    const Site& to) {
  const auto input = tensor(node, 0);
  const auto& sizes = builder.values().sizes(input);
  Args args;
  args.batch = sizes[0];
  args.pixels = count(sizes) / (sizes[0] * sizes[1]);
  args.x_batch_stride = from.batch;
  args.out_batch_stride = to.batch;
  args.x_stride = from.step;
  args.out_stride = to.step;
  args.dtype = kernel_type(builder.values().dtype(input));
  return args;
}

// Throws Refused unless weight and bias, operands 1 and 2, have so many
// elements of one dtype, which is the input's or, beside one of less precision,
// float32.
void check_factors(const Values& values, const Node& node, int64_t elements) {
  const auto dtype = values.dtype(tensor(node, 0));
  for (const size_t i : {1, 2}) {
    if (!has(node, i)) {
      continue;
    }
    const auto factor = tensor(node, i);
    type_of(values.dtype(factor));
    if (count(values.sizes(factor)) != elements) {
      refuse("a normalisation whose weights have another size");
    }
    if (has(node, 1) && values.dtype(factor) != values.dtype(tensor(node, 1))) {
      refuse("a normalisation whose weight and bias differ in dtype");
    }
    if (values.dtype(factor) != dtype && values.dtype(factor) != kFloat &&
        node.op != Op::rms_norm) { // which torch composes of operators
      refuse("a normalisation whose weights are less exact than its input");
    }
  }
}

// The dtype of weight and bias; without them, that of the input.
kernels::DType factor_type(const Builder& builder, const Node& node) {
  const auto factor = has(node, 1) ? 1 : has(node, 2) ? 2 : 0;
  return kernel_type(builder.values().dtype(tensor(node, factor)));
}

// How many elements are normalised together.
int64_t columns_of(const Values& values, const Node& node) {
  const auto& sizes = values.sizes(tensor(node, 0));
  return count(
      Dims(sizes.end() - node.as<attr::layer_norm>().dims, sizes.end()));
}

} // namespace

void infer_layer_norm(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  const auto& sizes = values.sizes(input);
  const auto dtype = values.dtype(input);
  type_of(dtype);
  const auto dims = node.as<attr::layer_norm>().dims;
  if (dims < 1 || dims > std::ssize(sizes)) {
    refuse("a normalisation over dimensions that are not there");
  }
  const auto wanted = node.as<attr::layer_norm>().sizes;
  if (!wanted.empty() && wanted != Dims(sizes.end() - dims, sizes.end())) {
    refuse("a normalisation over other sizes");
  }
  check_factors(values, node, columns_of(values, node));
  if (has(node, 3) && values.dtype(tensor(node, 3)) != dtype) {
    refuse("tensors of different dtypes");
  }
  const auto stated = node.as<attr::layer_norm>().dtype;
  if (stated && *stated != dtype) {
    refuse("a normalisation that converts");
  }
  for (const auto output : node.outputs) {
    values.set_type(output, sizes, dtype);
  }
}

void build_layer_norm(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto columns = columns_of(builder.values(), node);
  const auto from = builder.dense(input);
  const auto weight = dense_or_none(builder, node, 1),
             bias = dense_or_none(builder, node, 2),
             residual = dense_or_none(builder, node, 3);
  const auto to = builder.make_over(output, input, from);
  const auto sum =
      node.outputs.size() > 1 ? builder.make_dense(node.outputs[1]).ref : Ref{};
  using Args = kernels::NormArgs;
  add_kernel(
      builder,
      node,
      residual ? name_of(node.op) + " with residual" : name_of(node.op),
      norm_kernel(node.op),
      {.rows = count(builder.values().sizes(input)) / columns,
       .cols = columns,
       .eps = static_cast<float>(node.as<attr::layer_norm>().eps),
       .dtype = kernel_type(builder.values().dtype(input)),
       .weight_dtype = factor_type(builder, node)},
      {{&Args::x, from.ref},
       {&Args::residual, residual},
       {&Args::weight, weight},
       {&Args::bias, bias},
       {&Args::out, to.ref},
       {&Args::sum_out, sum}});
}

void infer_group_norm(Values& values, const Node& node) {
  const auto& sizes = values.sizes(tensor(node, 0));
  const auto groups = node.as<attr::group_norm>().groups;
  if (sizes.size() < 2 || groups < 1 || sizes[1] % groups != 0) {
    refuse("a normalisation of groups that do not divide the channels");
  }
  check_factors(values, node, sizes[1]);
  infer_eltwise(values, node);
}

void build_group_norm(Builder& builder, const Node& node) {
  const auto from = read_channels(builder, node, /*blocks=*/false);
  const auto to = write_channels(builder, node, from);
  using Args = kernels::GroupNormArgs;
  auto args = args_of<Args>(builder, node, from, to);
  args.groups = node.as<attr::group_norm>().groups;
  args.eps = static_cast<float>(node.as<attr::group_norm>().eps);
  args.channels = builder.values().sizes(tensor(node, 0))[1] / args.groups;
  args.channels_last = from.layout == ChannelLayout::last;
  args.weight_dtype = factor_type(builder, node);
  add_kernel(
      builder,
      node,
      name_of(node.op),
      kernels::group_norm,
      args,
      {{&Args::x, from.place.ref},
       {&Args::weight, dense_or_none(builder, node, 1)},
       {&Args::bias, dense_or_none(builder, node, 2)},
       {&Args::out, to.place.ref}});
}

void infer_batch_norm(Values& values, const Node& node) {
  const auto& sizes = values.sizes(tensor(node, 0));
  if (sizes.size() < 2) {
    refuse("a batch normalisation of a tensor without channels");
  }
  for (const size_t i : {1, 2, 3, 4}) {
    if (has(node, i) && (values.dtype(tensor(node, i)) != kFloat ||
                         count(values.sizes(tensor(node, i))) != sizes[1])) {
      refuse("a batch normalisation whose statistics are not float32");
    }
  }
  infer_eltwise(values, node);
}

void build_batch_norm(Builder& builder, const Node& node) {
  const auto from = read_channels(builder, node, /*blocks=*/true);
  const auto to = write_channels(builder, node, from);
  using Args = kernels::BatchNormArgs;
  auto args = args_of<Args>(builder, node, from, to);
  args.channels = builder.values().sizes(tensor(node, 0))[1];
  args.eps = static_cast<float>(node.as<attr::batch_norm>().eps);
  args.weight_dtype = kernels::DType::float32;
  args.layout = from.layout;
  args.relu = !node.post.empty() && node.post[0].is(kernels::Eltwise::relu);
  add_kernel(
      builder,
      node,
      args.relu ? "batch_norm relu" : "batch_norm",
      kernels::batch_norm,
      args,
      {{&Args::x, from.place.ref},
       {&Args::weight, dense_or_none(builder, node, 1)},
       {&Args::bias, dense_or_none(builder, node, 2)},
       {&Args::mean, dense_or_none(builder, node, 3)},
       {&Args::variance, dense_or_none(builder, node, 4)},
       {&Args::out, to.place.ref}});
  apply_rest(builder, node, args.relu ? 1 : 0);
}

} // namespace at::native::zendnn::plan
