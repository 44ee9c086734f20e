// Images in other sizes: nearest and bilinear.
#include <torch/csrc/zendnn/plan/Operators.h>

#include <ATen/native/zendnn/kernels/resampling.h>

#include <algorithm>
#include <cmath>
#include <sstream>

namespace at::native::zendnn::plan {
namespace {

// The factor of the height or of the width; 0 where it is not known.
double scale_of(const Node& node, size_t dim) {
  return dim == 0 ? node.get(attr::resample::scale_height)
                  : node.get(attr::resample::scale_width);
}

bool is_linear(const Node& node) {
  const auto algorithm = node.get(attr::resample::algorithm);
  if (algorithm != "nearest" && algorithm != "linear") {
    refuse("a resampling by '" + algorithm + "'");
  }
  return algorithm == "linear";
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

// In torch's own arithmetic, so that ties go where torch sends them.
void find_lines(
    const Node& node,
    int64_t in,
    int64_t out,
    double factor,
    int32_t* first,
    int32_t* second,
    float* share) {
  const bool corners = node.get(attr::resample::align_corners);
  float scale = factor > 0 ? static_cast<float>(1.0 / factor)
                           : static_cast<float>(in) / static_cast<float>(out);
  if (corners) {
    scale = out > 1 ? static_cast<float>(in - 1) / static_cast<float>(out - 1)
                    : 0.F;
  }
  for (int64_t i = 0; i < out; ++i) {
    const auto place = static_cast<float>(i);
    float source = place * scale;
    if (is_linear(node) && !corners) {
      source = std::max(scale * (place + 0.5F) - 0.5F, 0.F);
    }
    // A factor next to 0 makes places that no integer holds, and NaN.
    const auto line = source < static_cast<float>(in - 1)
                          ? std::min(static_cast<int64_t>(source), in - 1)
                          : in - 1;
    first[i] = static_cast<int32_t>(line);
    // Lines that are copied are not blended with the next one, times nothing.
    second[i] =
        static_cast<int32_t>(in == out ? line : std::min(line + 1, in - 1));
    share[i] = std::clamp(source - static_cast<float>(line), 0.F, 1.F);
  }
}

// Three rows of as many items as the result has lines.
Ref lines_of(Builder& builder, const Node& node, size_t dim) {
  const auto in = builder.sizes(tensor(node, 0))[2 + dim],
             out = builder.sizes(node.output())[2 + dim];
  std::ostringstream key;
  key << "lines " << node.get(attr::resample::algorithm) << ' '
      << node.get(attr::resample::align_corners) << ' ' << std::hexfloat
      << scale_of(node, dim) << ' ' << in << ' ' << out;
  return builder.prepared(key.str(), 12 * out, [node, in, out, dim](void* to) {
    auto* first = static_cast<int32_t*>(to);
    find_lines(
        node,
        in,
        out,
        scale_of(node, dim),
        first,
        first + out,
        reinterpret_cast<float*>(first + 2 * out));
  });
}

kernels::Lines see_lines(const int32_t* lines, int64_t count, bool linear) {
  return {
      lines,
      lines + count,
      linear ? reinterpret_cast<const float*>(lines + 2 * count) : nullptr};
}

} // namespace

void infer_resample(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0);
  auto sizes = builder.sizes(input);
  type_of(builder.dtype(input));
  is_linear(node);
  if (sizes.size() != 4) {
    refuse("a resampling of a tensor that is no batch of images");
  }
  for (size_t dim = 0; dim < 2; ++dim) {
    auto& size = sizes[2 + dim];
    if (size < 1) {
      refuse("an empty tensor");
    }
    size = has(node, 1 + dim)
               ? builder.number(node.inputs[1 + dim])
               : static_cast<int64_t>(std::floor(
                     static_cast<double>(size) * scale_of(node, dim)));
    if (size < 1 || size > INT32_MAX) {
      refuse("a resampling to nothing");
    }
    const auto before = builder.sizes(input)[2 + dim];
    const auto factor = scale_of(node, dim);
    if (!is_linear(node) && factor > 0 &&
        ((size == before && factor != 1) ||
         (size == 2 * before && factor != 2))) {
      // torch heeds the factor or not, as the layout has it.
      refuse("a resampling whose factor is not that of the sizes");
    }
  }
  builder.set_type(node.output(), sizes, builder.dtype(input));
}

void build_resample(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto &in = builder.sizes(input), &out = builder.sizes(output);
  auto from = builder.strided(input);
  auto strides = image_strides(in, from);
  if (!strides) {
    from = builder.dense(input);
    strides = image_strides(in, from);
  }
  if (strides->channel != 1 && in[1] != 1 && in[3] > kernels::kLongestRow) {
    refuse("a resampling of rows that are too long");
  }
  const bool rows = strides->pixel == 1 && in[3] <= kernels::kLongestRow;
  const auto fits = [&](const Place& place) {
    return !place.blocked && place.strides[rows ? 3 : 1] == 1;
  };
  Place to;
  if (const auto slice = builder.target(output); slice && fits(*slice)) {
    to = *slice;
    builder.set_place(output, to);
  } else if (rows) {
    to = builder.make_dense(output);
  } else {
    to = builder.make(
        output,
        memory::desc(
            out, type_of(builder.dtype(output)), channels_last_strides(out)));
  }
  const auto lines = lines_of(builder, node, 0),
             columns = lines_of(builder, node, 1);
  kernels::ResampleArgs args;
  args.x_strides = *strides;
  args.out_strides = {
      to.strides[0], to.strides[1], to.strides[2], to.strides[3]};
  args.batch = in[0];
  args.channels = in[1];
  args.width = in[3];
  args.out_height = out[2];
  args.out_width = out[3];
  args.dtype = kernel_type(builder.dtype(input));
  builder.add_kernel(
      node,
      "resample " + node.get(attr::resample::algorithm),
      {from.ref, to.ref, lines, columns},
      [args,
       from = from.ref,
       to = to.ref,
       lines,
       columns,
       linear = is_linear(node)](const Frame& frame) {
        auto call = args;
        call.x = frame.at(from);
        call.out = frame.at(to);
        call.rows =
            see_lines(frame.at<int32_t>(lines), args.out_height, linear);
        call.columns =
            see_lines(frame.at<int32_t>(columns), args.out_width, linear);
        kernels::resample(call);
      });
}

} // namespace at::native::zendnn::plan
