// Choosing between two tensors, or between a tensor and a number.
#include <torch/csrc/zendnn/plan/Kernel.h>

#include <ATen/native/zendnn/Dtypes.h>
#include <ATen/native/zendnn/kernels/where.h>

namespace at::native::zendnn::plan {
namespace {

// The condition, and x and y, either of which may be the node's number.
constexpr size_t kOperands = 3;

// The node's number, once for all executables of a plan.
Ref number_of(Builder& builder, const Node& node, c10::ScalarType dtype) {
  const auto number = static_cast<float>(node.get(attr::where::value));
  std::ostringstream key;
  key << dtype << " number " << std::hexfloat << number;
  return builder.prepared(key.str(), item_size(dtype), [=](void* to) {
    write_number(dtype, number, to);
  });
}

template <typename T>
void mark(const void* from, uint8_t* to, int64_t size) {
  const auto* numbers = static_cast<const T*>(from);
  for (int64_t i = 0; i < size; ++i) {
    to[i] = static_cast<float>(numbers[i]) != 0.F;
  }
}

using Mark = void (*)(const void*, uint8_t*, int64_t);

Mark marker(c10::ScalarType dtype) {
  if (dtype == c10::ScalarType::Long) {
    return mark<int64_t>;
  }
  if (dtype == c10::ScalarType::Int) {
    return mark<int32_t>;
  }
  const auto* const row = find_dtype(dtype);
  if (row == nullptr) {
    refuse("the truth of a tensor of another dtype");
  }
  return with_type(*row, []<class T>(T) -> Mark { return mark<T>; });
}

} // namespace

void infer_nonzero(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  if (values.dtype(input) != c10::ScalarType::Bool) {
    marker(values.dtype(input));
  }
  values.set_type(node.output(), values.sizes(input), c10::ScalarType::Bool);
}

void build_nonzero(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto dtype = builder.dtype(input);
  if (dtype == c10::ScalarType::Bool) {
    builder.set_place(output, builder.place(input));
    return;
  }
  const auto from = builder.dense(input);
  const auto to = builder.make_dense(output);
  builder.add_kernel(
      node,
      "nonzero",
      {from.ref, to.ref},
      [from = from.ref,
       to = to.ref,
       size = count(builder.sizes(input)),
       mark = marker(dtype)](const Frame& frame) {
        mark(frame.at(from), frame.at<uint8_t>(to), size);
      });
}

void infer_where(Values& values, const Node& node) {
  if (values.dtype(tensor(node, 0)) != c10::ScalarType::Bool) {
    refuse("a choice whose condition is not a tensor of bool");
  }
  auto dtype = c10::ScalarType::Undefined;
  Dims out;
  for (size_t i = 0; i < kOperands; ++i) {
    if (!has(node, i)) {
      continue;
    }
    out = broadcast(out, values.sizes(tensor(node, i)));
    if (i == 0) {
      continue;
    }
    const auto here = values.dtype(tensor(node, i));
    if (dtype != c10::ScalarType::Undefined && dtype != here) {
      refuse("tensors of different dtypes");
    }
    dtype = here;
  }
  rounded(dtype, node.get(attr::where::value));
  values.set_type(node.output(), out, dtype);
}

void build_where(Builder& builder, const Node& node) {
  const auto output = node.output();
  const auto& sizes = builder.sizes(output);
  std::vector<Ref> from;
  std::vector<Dims> strides;
  for (size_t i = 0; i < kOperands; ++i) {
    if (!has(node, i)) {
      from.push_back(number_of(builder, node, builder.dtype(output)));
      strides.emplace_back(sizes.size(), 0);
      continue;
    }
    const auto value = tensor(node, i);
    const auto place = builder.strided(value);
    from.push_back(place.ref);
    strides.push_back(
        broadcast_strides(builder.sizes(value), place.strides, sizes));
  }
  const auto to = builder.make_dense(output);
  using Args = kernels::WhereArgs;
  add_kernel(
      builder,
      node,
      "where",
      kernels::where,
      {.ndim = static_cast<int64_t>(sizes.size()),
       .dtype = kernel_type(builder.dtype(output))},
      {{&Args::condition, from[0]},
       {&Args::condition_strides, strides[0]},
       {&Args::x, from[1]},
       {&Args::x_strides, strides[1]},
       {&Args::y, from[2]},
       {&Args::y_strides, strides[2]},
       {&Args::out, to.ref},
       {&Args::out_strides, to.strides},
       {&Args::sizes, sizes}});
}

} // namespace at::native::zendnn::plan
