// Normalisation of channels: of groups of them by what they are, and of each by
// statistics that are known.
#include <torch/csrc/zendnn/plan/Kernel.h>
#include <torch/csrc/zendnn/plan/PostOps.h>

#include <ATen/native/zendnn/kernels/batch_norm.h>
#include <ATen/native/zendnn/kernels/group_norm.h>

namespace at::native::zendnn::plan {
namespace {

using kernels::ChannelLayout;

// How a kernel goes through a place.
struct Steps {
  ChannelLayout layout;
  int64_t batch,
      step; // from an image, and a channel, pixel or block, to the next
};

// Where pixels, or channels, are side by side, and rows of pixels follow each
// other.
std::optional<Steps>
plain_steps(const Dims& sizes, const Dims& strides, bool channels_last) {
  // The distance from a pixel to the next.
  int64_t pixel = 1, span = 1;
  for (auto i = sizes.size() - 1; i >= 2; --i) {
    if (sizes[i] == 1) {
      continue;
    }
    if (span == 1) {
      pixel = strides[i];
    } else if (strides[i] != pixel * span) {
      return std::nullopt;
    }
    span *= sizes[i];
  }
  if (channels_last) {
    return strides[1] == 1
               ? std::optional(Steps{ChannelLayout::last, strides[0], pixel})
               : std::nullopt;
  }
  return pixel == 1 ? std::optional(
                          Steps{ChannelLayout::planes, strides[0], strides[1]})
                    : std::nullopt;
}

std::optional<Steps>
steps_of(const Builder& builder, int64_t value, const Place& place) {
  const auto& sizes = builder.sizes(value);
  if (!place.blocked) {
    auto steps = plain_steps(sizes, place.strides, sizes[1] > 1);
    return steps ? steps : plain_steps(sizes, place.strides, false);
  }
  if (sizes.size() < 3) {
    return std::nullopt;
  }
  const auto strides = place.desc.get_strides();
  const auto whole = strides[0] / strides[1] * channel_block();
  return place.desc == blocked_layout(sizes, builder.dtype(value), whole)
             ? std::optional(
                   Steps{ChannelLayout::blocks, strides[0], strides[1]})
             : std::nullopt;
}

struct Site {
  Place place;
  Steps steps;
};

// Where the operand of a kernel is that reads such layouts, and perhaps blocks.
Site read_channels(Builder& builder, int64_t value, bool blocks) {
  const auto& best = builder.place(value);
  if (best.blocked && blocks) {
    if (const auto steps = steps_of(builder, value, best)) {
      return {best, *steps};
    }
  }
  auto from = builder.addressable(value);
  auto steps = steps_of(builder, value, from);
  if (!steps) {
    from = builder.dense(value);
    steps = steps_of(builder, value, from);
  }
  return {from, *steps};
}

// Where its result goes, in the same layout: over the operand, into the
// concatenation that it is a part of, or somewhere new.
Site write_channels(
    Builder& builder,
    int64_t input,
    int64_t output,
    const Site& from) {
  const auto target = builder.target(output);
  if (target) {
    if (const auto steps = steps_of(builder, output, *target);
        steps && steps->layout == from.steps.layout) {
      builder.set_place(output, *target);
      return {*target, *steps};
    }
  } else if (builder.reuse(output, input, from.place)) {
    return from;
  }
  const auto& sizes = builder.sizes(output);
  const auto dtype = builder.dtype(output);
  Place to;
  switch (from.steps.layout) {
    case ChannelLayout::blocks:
      to = builder.make(output, blocked_layout(sizes, dtype));
      break;
    case ChannelLayout::last:
      if (sizes.size() > 2) {
        to = builder.make(
            output,
            memory::desc(sizes, type_of(dtype), channels_last_strides(sizes)));
        break;
      }
      [[fallthrough]];
    case ChannelLayout::planes:
      to = builder.make_dense(output);
  }
  return {to, *steps_of(builder, output, to)};
}

// What both kernels ask for.
template <class Args>
Args args_of(
    const Builder& builder,
    const Node& node,
    const Site& from,
    const Site& to) {
  const auto input = tensor(node, 0);
  const auto& sizes = builder.sizes(input);
  Args args;
  args.batch = sizes[0];
  args.pixels = count(sizes) / (sizes[0] * sizes[1]);
  args.x_batch_stride = from.steps.batch;
  args.out_batch_stride = to.steps.batch;
  args.x_stride = from.steps.step;
  args.out_stride = to.steps.step;
  args.eps = static_cast<float>(node.get(attr::batch_norm::eps));
  args.dtype = kernel_type(builder.dtype(input));
  return args;
}

} // namespace

void infer_group_norm(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  const auto& sizes = values.sizes(input);
  const auto groups = node.get(attr::group_norm::groups);
  type_of(values.dtype(input));
  if (sizes.size() < 2 || groups < 1 || sizes[1] % groups != 0) {
    refuse("a normalisation of groups that do not divide the channels");
  }
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (node.inputs[i]) {
      type_of(values.dtype(tensor(node, i)));
      if (values.sizes(tensor(node, i)) != Dims{sizes[1]} ||
          values.dtype(tensor(node, i)) !=
              values.dtype(tensor(node, node.inputs[1] ? 1 : i))) {
        refuse("a normalisation whose weights have another size");
      }
    }
  }
  values.set_type(node.output(), sizes, values.dtype(input));
}

void build_group_norm(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto& sizes = builder.sizes(input);
  const auto from = read_channels(builder, input, /*blocks=*/false);
  const auto to = write_channels(builder, input, output, from);
  auto args = args_of<kernels::GroupNormArgs>(builder, node, from, to);
  args.groups = node.get(attr::group_norm::groups);
  args.channels = sizes[1] / args.groups;
  args.channels_last = from.steps.layout == ChannelLayout::last;
  Ref factors[2];
  for (size_t i = 0; i < 2; ++i) {
    if (node.inputs.size() > i + 1 && node.inputs[i + 1]) {
      const auto factor = tensor(node, i + 1);
      factors[i] = builder.dense(factor).ref;
      args.weight_dtype = kernel_type(builder.dtype(factor));
    }
  }
  using Args = kernels::GroupNormArgs;
  add_kernel(
      builder,
      node,
      "group_norm",
      kernels::group_norm,
      args,
      {{&Args::x, from.place.ref},
       {&Args::weight, factors[0]},
       {&Args::bias, factors[1]},
       {&Args::out, to.place.ref}});
}

void infer_batch_norm(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  const auto& sizes = values.sizes(input);
  type_of(values.dtype(input));
  if (sizes.size() < 2) {
    refuse("a batch normalisation of a tensor without channels");
  }
  for (size_t i = 1; i <= 4; ++i) {
    if (has(node, i) &&
        (values.dtype(tensor(node, i)) != c10::ScalarType::Float ||
         count(values.sizes(tensor(node, i))) != sizes[1])) {
      refuse("a batch normalisation whose statistics are not float32");
    }
  }
  values.set_type(node.output(), sizes, values.dtype(input));
}

void build_batch_norm(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto from = read_channels(builder, input, /*blocks=*/true);
  const auto to = write_channels(builder, input, output, from);
  auto args = args_of<kernels::BatchNormArgs>(builder, node, from, to);
  args.channels = builder.sizes(input)[1];
  args.layout = from.steps.layout;
  args.relu = !node.post.empty() && node.post[0].algorithm == "relu";
  Ref factors[4]; // weight, bias, mean, variance
  for (size_t i = 0; i < 4; ++i) {
    if (has(node, i + 1)) {
      factors[i] = builder.dense(tensor(node, i + 1)).ref;
    }
  }
  using Args = kernels::BatchNormArgs;
  add_kernel(
      builder,
      node,
      args.relu ? "batch_norm relu" : "batch_norm",
      kernels::batch_norm,
      args,
      {{&Args::x, from.place.ref},
       {&Args::weight, factors[0]},
       {&Args::bias, factors[1]},
       {&Args::mean, factors[2]},
       {&Args::variance, factors[3]},
       {&Args::out, to.place.ref}});
  apply_rest(builder, node, args.relu ? 1 : 0);
}

} // namespace at::native::zendnn::plan
