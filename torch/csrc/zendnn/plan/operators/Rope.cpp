// Rotary position embedding.
#include <torch/csrc/zendnn/plan/build/Kernel.h>

#include <ATen/native/zendnn/kernels/rope.h>

namespace at::native::zendnn::plan {

void infer_rope(Values& values, const Node& node) {
  const auto input = tensor(node, 0), cos = tensor(node, 1),
             sin = tensor(node, 2);
  const auto dtype = values.dtype(input);
  type_of(dtype);
  if (values.dtype(cos) != dtype || values.dtype(sin) != dtype) {
    refuse("tensors of different dtypes");
  }
  const auto& sizes = values.sizes(input);
  if (sizes.empty() || values.sizes(cos).empty()) {
    refuse("a rotation of a tensor without dimensions");
  }
  auto rotated = sizes;
  rotated.back() = values.sizes(cos).back();
  if (rotated.back() > sizes.back() || rotated.back() % 2 != 0 ||
      values.sizes(sin).empty() || values.sizes(sin).back() != rotated.back()) {
    refuse("a rotation by tables of other sizes");
  }
  for (const auto table : {cos, sin}) {
    if (broadcast(values.sizes(table), rotated) != rotated) {
      refuse("a rotation by tables of more dimensions");
    }
  }
  // In torch, all that stays is one of two parts of a concatenation.
  values.set_type(
      node.output(),
      sizes,
      dtype,
      rotated == sizes ? combined_strides(
                             {{sizes, values.strides(input)},
                              {values.sizes(cos), values.strides(cos)},
                              {values.sizes(sin), values.strides(sin)}})
                       : row_major_strides(sizes));
}

void build_rope(Builder& builder, const Node& node) {
  const auto output = node.output();
  const auto& sizes = builder.values().sizes(output);
  const auto rows_of = [&](size_t index) {
    const auto value = tensor(node, index);
    auto place = builder.with_rows(value);
    place.strides =
        broadcast_strides(builder.values().sizes(value), place.strides, sizes);
    return place;
  };
  const auto x = rows_of(0), cos = rows_of(1), sin = rows_of(2);
  const auto to = builder.make_rows(output);
  using Args = kernels::RopeArgs;
  add_kernel(
      builder,
      node,
      "rope",
      kernels::rope,
      {.ndim = std::ssize(sizes),
       .rotary = builder.values().sizes(tensor(node, 1)).back(),
       .interleaved = node.as<attr::rope>().interleaved,
       .dtype = kernel_type(builder.values().dtype(output))},
      {{&Args::x, x.ref},
       {&Args::x_strides, x.strides},
       {&Args::cos, cos.ref},
       {&Args::cos_strides, cos.strides},
       {&Args::sin, sin.ref},
       {&Args::sin_strides, sin.strides},
       {&Args::out, to.ref},
       {&Args::out_strides, to.strides},
       {&Args::sizes, sizes}});
}

} // namespace at::native::zendnn::plan
