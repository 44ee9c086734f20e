// Images and signals in other sizes.
#include <torch/csrc/zendnn/plan/Operators.h>

#include <ATen/native/zendnn/kernels/resampling.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <unordered_map>

namespace at::native::zendnn::plan {
namespace {

// The factor of the height or of the width; 0 where it is not known.
double scale_of(const Node& node, size_t dim) {
  return dim == 0 ? node.get(attr::resample::scale_height)
                  : node.get(attr::resample::scale_width);
}

kernels::Resampling algorithm_of(const Node& node) {
  using kernels::Resampling;
  static const std::unordered_map<std::string, Resampling> table{
      {"nearest", Resampling::nearest},
      {"linear", Resampling::linear},
      {"cubic", Resampling::cubic}};
  return find_row(
      table, node.get(attr::resample::algorithm), "a resampling by");
}

// A signal is an image of one row.
Dims as_image(Dims sizes) {
  if (sizes.size() == 3) {
    sizes.insert(sizes.begin() + 2, 1);
  }
  return sizes;
}

Place as_image(Place place) {
  if (place.strides.size() == 3) {
    place.strides.insert(
        place.strides.begin() + 2, 0); // there is no second row
  }
  return place;
}

// The strides of an image whose pixels or whose channels lie side by side.
std::optional<kernels::ResampleStrides> image_strides(
    const Dims& sizes,
    const Place& place) {
  if (place.blocked) {
    return std::nullopt;
  }
  const auto& s = place.strides;
  const kernels::ResampleStrides strides{s[0], s[1], s[2], s[3]};
  return s[3] == 1 || s[1] == 1 || sizes[1] == 1 ? std::optional(strides)
                                                 : std::nullopt;
}

// Where the lines of the result come from, along one of the two dimensions.
struct ImageLines {
  kernels::Resampling algorithm;
  int64_t count;
  Ref ref{}; // places, then weights

  kernels::Lines at(const Frame& frame) const {
    const auto taps = kernels::taps_of(algorithm);
    const auto* places = frame.at<int32_t>(ref);
    return {
        algorithm,
        places,
        reinterpret_cast<const float*>(places + taps * count)};
  }
};

ImageLines
lines_of(Builder& builder, const Node& node, size_t dim, const Dims& in) {
  const bool is_signal = builder.sizes(node.output()).size() == 3;
  const auto algorithm =
      is_signal && dim == 0 ? kernels::Resampling::nearest : algorithm_of(node);
  const auto out = as_image(builder.sizes(node.output()))[2 + dim];
  const kernels::LinesArgs args{
      .algorithm = algorithm,
      .align_corners = node.get(attr::resample::align_corners),
      .in = in[2 + dim],
      .out = out,
      .factor = is_signal && dim == 0 ? 0 : scale_of(node, dim)};
  std::ostringstream key;
  key << "lines " << static_cast<int>(algorithm) << ' ' << args.align_corners
      << ' ' << std::hexfloat << args.factor << ' ' << args.in << ' ' << out;
  const auto taps = kernels::taps_of(algorithm);
  return {
      algorithm,
      out,
      builder.prepared(key.str(), 8 * taps * out, [args, taps](void* to) {
        auto call = args;
        call.places = static_cast<int32_t*>(to);
        call.weights = reinterpret_cast<float*>(call.places + taps * call.out);
        kernels::find_lines(call);
      })};
}

} // namespace

void infer_resample(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  auto sizes = values.sizes(input);
  type_of(values.dtype(input));
  const auto algorithm = algorithm_of(node);
  const bool is_signal =
      sizes.size() == 3 && algorithm == kernels::Resampling::linear;
  if (sizes.size() != 4 && !is_signal) {
    refuse("a resampling of a tensor that is no batch of images");
  }
  for (size_t dim = is_signal ? 1 : 0; dim < 2; ++dim) {
    auto& size = sizes[sizes.size() - 2 + dim];
    if (size < 1) {
      refuse("an empty tensor");
    }
    size = has(node, 1 + dim)
               ? values.number(node.inputs[1 + dim])
               : static_cast<int64_t>(std::floor(
                     static_cast<double>(size) * scale_of(node, dim)));
    if (size < 1 || size > INT32_MAX) {
      refuse("a resampling to nothing");
    }
    const auto before = values.sizes(input)[sizes.size() - 2 + dim];
    const auto factor = scale_of(node, dim);
    if (algorithm == kernels::Resampling::nearest && factor > 0 &&
        ((size == before && factor != 1) ||
         (size == 2 * before && factor != 2))) {
      // torch heeds the factor or not, as the layout has it.
      refuse("a resampling whose factor is not that of the sizes");
    }
  }
  values.set_type(node.output(), sizes, values.dtype(input));
}

void build_resample(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto in = as_image(builder.sizes(input)),
             out = as_image(builder.sizes(output));
  auto from = as_image(builder.strided(input));
  auto strides = image_strides(in, from);
  const bool is_signal = builder.sizes(output).size() == 3;
  if (!strides || (is_signal && strides->pixel != 1)) {
    from = as_image(builder.dense(input));
    strides = image_strides(in, from);
  }
  const bool rows = strides->pixel == 1;
  const auto slice = builder.target(output);
  Place to;
  if (slice && !slice->blocked && as_image(*slice).strides[rows ? 3 : 1] == 1) {
    to = *slice;
    builder.set_place(output, to);
  } else if (rows || is_signal) {
    to = builder.make_dense(output);
  } else {
    to = builder.make(
        output,
        memory::desc(
            out, type_of(builder.dtype(output)), channels_last_strides(out)));
  }
  to = as_image(to);
  const auto lines = lines_of(builder, node, 0, in),
             columns = lines_of(builder, node, 1, in);
  kernels::ResampleArgs args;
  args.x_strides = *strides;
  args.out_strides = {
      to.strides[0], to.strides[1], to.strides[2], to.strides[3]};
  args.batch = in[0];
  args.channels = in[1];
  args.out_height = out[2];
  args.out_width = out[3];
  args.dtype = kernel_type(builder.dtype(input));
  builder.add_kernel(
      node,
      "resample " + node.get(attr::resample::algorithm),
      {from.ref, to.ref, lines.ref, columns.ref},
      [args, from = from.ref, to = to.ref, lines, columns](const Frame& frame) {
        auto call = args;
        call.x = frame.at(from);
        call.out = frame.at(to);
        call.rows = lines.at(frame);
        call.columns = columns.at(frame);
        kernels::resample(call);
      });
}

} // namespace at::native::zendnn::plan
