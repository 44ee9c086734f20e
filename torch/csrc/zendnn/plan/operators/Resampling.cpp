// Images and signals in other sizes.
#include <torch/csrc/zendnn/plan/build/Kernel.h>

#include <ATen/native/zendnn/kernels/resampling.h>

#include <cmath>
#include <sstream>

namespace at::native::zendnn::plan {
namespace {

// The factor of the height or of the width; 0 where it is not known.
double scale_of(const Node& node, size_t dim) {
  return dim == 0 ? node.as<attr::resample>().scale_height
                  : node.as<attr::resample>().scale_width;
}

// A signal is an image of one row.
Dims as_image(Dims sizes) {
  if (sizes.size() == 3) {
    sizes.insert(sizes.begin() + 2, 1);
  }
  return sizes;
}

kernels::ResampleStrides strides_of(const Place& place) {
  const auto& s = place.strides;
  return s.size() == 3 ? kernels::ResampleStrides{s[0], s[1], 0, s[2]}
                       : kernels::ResampleStrides{s[0], s[1], s[2], s[3]};
}

// Finds the lines that the result's are made of, once for all executables.
Ref prepare_lines(Builder& builder, const kernels::LinesArgs& args) {
  std::ostringstream key;
  key << "lines " << static_cast<int>(args.algorithm) << ' '
      << args.align_corners << ' ' << std::hexfloat << args.factor << ' '
      << args.in << ' ' << args.out;
  return builder.prepared(key.str(), kernels::lines_bytes(args), [=](void* to) {
    auto call = args;
    call.lines = static_cast<int32_t*>(to);
    kernels::find_lines(call);
  });
}

} // namespace

void infer_resample(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  auto sizes = values.sizes(input);
  type_of(values.dtype(input));
  const auto algorithm = node.as<attr::resample>().algorithm;
  const bool is_signal =
      sizes.size() == 3 && algorithm == kernels::Resampling::linear;
  if (sizes.size() != 4 && !is_signal) {
    refuse("a resampling of a tensor that is no batch of images");
  }
  for (size_t dim = is_signal ? 1 : 0; dim < 2; ++dim) {
    auto& size = sizes[sizes.size() - 2 + dim];
    const auto before = size;
    const auto factor = scale_of(node, dim);
    size = has(node, 1 + dim) ? values.number(node.inputs[1 + dim])
                              : static_cast<int64_t>(std::floor(
                                    static_cast<double>(before) * factor));
    if (size < 1 || size > INT32_MAX) {
      refuse("a resampling to nothing");
    }
    if (algorithm == kernels::Resampling::nearest && factor > 0 &&
        ((size == before && factor != 1) ||
         (size == 2 * before && factor != 2))) {
      // Whether torch uses the factor depends on the layout.
      refuse("a resampling whose factor is not that of the sizes");
    }
  }
  values.set_type(node.output(), sizes, values.dtype(input));
}

void build_resample(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto in = as_image(builder.values().sizes(input)),
             out = as_image(builder.values().sizes(output));
  const bool is_signal = builder.values().sizes(output).size() == 3;
  auto from = builder.strided(input);
  const auto seen = strides_of(from);
  if (seen.pixel != 1 && (is_signal || (seen.channel != 1 && in[1] != 1))) {
    from = builder.dense(input);
  }
  const auto x_strides = strides_of(from);
  const bool by_rows = is_signal || x_strides.pixel == 1;
  Place to;
  if (const auto slice = builder.target(output);
      slice && !slice->blocked &&
      (by_rows ? slice->strides.back() : slice->strides[1]) == 1) {
    to = *slice;
    builder.set_place(output, to);
  } else {
    to = builder.make(
        output,
        by_rows ? builder.values().row_major(output)
                : memory::desc(
                      out,
                      type_of(builder.values().dtype(output)),
                      channels_last_strides(out)));
  }
  const auto across = node.as<attr::resample>().algorithm;
  const auto down = is_signal ? kernels::Resampling::nearest : across;
  const bool align = node.as<attr::resample>().align_corners;
  const auto rows = prepare_lines(
      builder,
      {.algorithm = down,
       .align_corners = align,
       .in = in[2],
       .out = out[2],
       .factor = is_signal ? 0 : scale_of(node, 0)});
  const auto columns = prepare_lines(
      builder,
      {.algorithm = across,
       .align_corners = align,
       .in = in[3],
       .out = out[3],
       .factor = scale_of(node, 1)});
  using Args = kernels::ResampleArgs;
  add_kernel(
      builder,
      node,
      "resample " + name_of(across),
      kernels::resample,
      {.x_strides = x_strides,
       .out_strides = strides_of(to),
       .down = down,
       .across = across,
       .batch = in[0],
       .channels = in[1],
       .out_height = out[2],
       .out_width = out[3],
       .dtype = kernel_type(builder.values().dtype(input))},
      {{&Args::x, from.ref},
       {&Args::out, to.ref},
       {&Args::rows, rows},
       {&Args::columns, columns}});
}

} // namespace at::native::zendnn::plan
