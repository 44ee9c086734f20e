// Choosing between two tensors, or between a tensor and a number.
#include <torch/csrc/zendnn/plan/Operators.h>

#include <ATen/native/zendnn/Dtypes.h>
#include <ATen/native/zendnn/kernels/select.h>

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

void infer_nonzero(Values& builder, const Node& node) {
  const auto input = tensor(node, 0);
  if (builder.dtype(input) != c10::ScalarType::Bool) {
    marker(builder.dtype(input));
  }
  builder.set_type(node.output(), builder.sizes(input), c10::ScalarType::Bool);
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

void infer_where(Values& builder, const Node& node) {
  if (builder.dtype(tensor(node, 0)) != c10::ScalarType::Bool) {
    refuse("a choice whose condition is not a tensor of bool");
  }
  auto dtype = c10::ScalarType::Undefined;
  Dims out;
  for (size_t i = 0; i < kOperands; ++i) {
    if (!has(node, i)) {
      continue;
    }
    out = broadcast(out, builder.sizes(tensor(node, i)));
    if (i == 0) {
      continue;
    }
    const auto here = builder.dtype(tensor(node, i));
    if (dtype != c10::ScalarType::Undefined && dtype != here) {
      refuse("tensors of different dtypes");
    }
    dtype = here;
  }
  rounded(dtype, node.get(attr::where::value));
  builder.set_type(node.output(), out, dtype);
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
  builder.add_kernel(
      node,
      "where",
      {from[0], from[1], from[2], to.ref},
      [from, strides, to, sizes, dtype = kernel_type(builder.dtype(output))](
          const Frame& frame) {
        kernels::where(
            {.condition = frame.at<uint8_t>(from[0]),
             .condition_strides = strides[0].data(),
             .x = frame.at(from[1]),
             .x_strides = strides[1].data(),
             .y = frame.at(from[2]),
             .y_strides = strides[2].data(),
             .out = frame.at(to.ref),
             .out_strides = to.strides.data(),
             .sizes = sizes.data(),
             .ndim = static_cast<int64_t>(sizes.size()),
             .dtype = dtype});
      });
}

} // namespace at::native::zendnn::plan
