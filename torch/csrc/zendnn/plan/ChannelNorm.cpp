// Normalisation of groups of channels.
#include <torch/csrc/zendnn/plan/Operators.h>

#include <ATen/native/zendnn/kernels/group_norm.h>

namespace at::native::zendnn::plan {
namespace {

struct Steps {
  int64_t batch, row; // see GroupNormArgs
};

// How to go through a place whose pixels, or whose channels, are side by side,
// and whose rows of pixels follow each other.
std::optional<Steps>
steps_of(const Dims& sizes, const Place& place, bool channels_last) {
  if (place.blocked) {
    return std::nullopt;
  }
  // The distance from a pixel to the next.
  int64_t pixel = 1, span = 1;
  for (auto i = sizes.size() - 1; i >= 2; --i) {
    if (sizes[i] == 1) {
      continue;
    }
    if (span == 1) {
      pixel = place.strides[i];
    } else if (place.strides[i] != pixel * span) {
      return std::nullopt;
    }
    span *= sizes[i];
  }
  if ((channels_last ? place.strides[1] : pixel) != 1) {
    return std::nullopt;
  }
  return Steps{place.strides[0], channels_last ? pixel : place.strides[1]};
}

} // namespace

void infer_group_norm(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0);
  const auto& sizes = builder.sizes(input);
  const auto groups = node.integer("groups", 1);
  type_of(builder.dtype(input));
  if (sizes.size() < 2 || groups < 1 || sizes[1] % groups != 0) {
    refuse("a normalisation of groups that do not divide the channels");
  }
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (node.inputs[i]) {
      type_of(builder.dtype(tensor(node, i)));
      if (builder.sizes(tensor(node, i)) != Dims{sizes[1]} ||
          builder.dtype(tensor(node, i)) !=
              builder.dtype(tensor(node, node.inputs[1] ? 1 : i))) {
        refuse("a normalisation whose weights have another size");
      }
    }
  }
  builder.set_type(node.output(), sizes, builder.dtype(input));
}

void build_group_norm(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto& sizes = builder.sizes(input);
  auto from = builder.addressable(input);
  bool last = sizes[1] > 1;
  auto steps = steps_of(sizes, from, last);
  if (!steps) {
    last = false;
    steps = steps_of(sizes, from, last);
  }
  if (!steps) {
    from = builder.dense(input);
    steps = steps_of(sizes, from, last);
  }
  Place to;
  std::optional<Steps> reached;
  if (const auto slice = builder.target(output)) {
    to = *slice;
    reached = steps_of(sizes, to, last);
  }
  if (reached) {
    builder.set_place(output, to);
  } else {
    to = last && sizes.size() > 2 ? builder.make(
                                        output,
                                        memory::desc(
                                            sizes,
                                            type_of(builder.dtype(output)),
                                            channels_last_strides(sizes)))
                                  : builder.make_dense(output);
    reached = steps_of(sizes, to, last);
  }
  kernels::GroupNormArgs args;
  args.batch = sizes[0];
  args.groups = node.integer("groups", 1);
  args.channels = sizes[1] / args.groups;
  args.pixels = count(sizes) / (sizes[0] * sizes[1]);
  args.x_batch_stride = steps->batch;
  args.out_batch_stride = reached->batch;
  args.x_stride = steps->row;
  args.out_stride = reached->row;
  args.channels_last = last;
  args.eps = static_cast<float>(node.real("eps", 1e-5));
  args.dtype = kernel_type(builder.dtype(input));
  Ref factors[2];
  for (size_t i = 0; i < 2; ++i) {
    if (node.inputs.size() > i + 1 && node.inputs[i + 1]) {
      const auto factor = tensor(node, i + 1);
      factors[i] = builder.dense(factor).ref;
      args.weight_dtype = kernel_type(builder.dtype(factor));
    }
  }
  builder.add_kernel(
      node,
      "group_norm",
      {from.ref, factors[0], factors[1], to.ref},
      [args,
       from = from.ref,
       to = to.ref,
       weight = factors[0],
       bias = factors[1]](const Frame& frame) {
        auto call = args;
        call.x = frame.at(from);
        call.weight = frame.at(weight);
        call.bias = frame.at(bias);
        call.out = frame.at(to);
        kernels::group_norm(call);
      });
}

} // namespace at::native::zendnn::plan
