// Elements that tensors of indices choose, and the indices of the largest ones.
#include <torch/csrc/zendnn/plan/build/Kernel.h>

#include <ATen/Parallel.h>
#include <ATen/native/TopKImpl.h>
#include <ATen/native/zendnn/kernels/indexing.h>

#include <map>
#include <string>
#include <vector>

namespace at::native::zendnn::plan {
namespace {

kernels::IndexType index_type(c10::ScalarType dtype) {
  if (dtype == c10::ScalarType::Long) {
    return kernels::IndexType::int64;
  }
  if (dtype == c10::ScalarType::Int) {
    return kernels::IndexType::int32;
  }
  refuse(std::string("indices of ") + c10::toString(dtype));
}

// The first dimension that is indexed, and the operands that are indices.
struct Indices {
  int64_t first = 0;
  std::vector<int64_t> values{};
};

Indices indices_of(const Node& node) {
  Indices found;
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (has(node, i)) {
      found.values.push_back(tensor(node, i));
    } else if (found.values.empty()) {
      ++found.first;
    } else {
      refuse("indices of dimensions apart");
    }
  }
  if (found.values.empty() ||
      std::ssize(found.values) > kernels::kMostIndices) {
    refuse(std::to_string(found.values.size()) + " tensors of indices");
  }
  return found;
}

Dims broadcast_sizes(const Values& values, const Indices& indices) {
  Dims sizes;
  for (const auto value : indices.values) {
    sizes = broadcast(sizes, values.sizes(value));
  }
  return sizes;
}

} // namespace

void infer_index(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  const auto& sizes = values.sizes(input);
  const auto rank = std::ssize(sizes);
  check_copied(item_size(values.dtype(input)));
  const auto indices = indices_of(node);
  for (const auto value : indices.values) {
    index_type(values.dtype(value));
  }
  Dims out;
  if (node.op == Op::take_along) {
    const auto dim = wrap(node.as<attr::index>().dim, rank);
    out = values.sizes(tensor(node, 1));
    for (int64_t d = 0; d < rank; ++d) {
      if (std::ssize(out) != rank || (d != dim && out[d] > sizes[d])) {
        refuse("indices of other sizes");
      }
    }
  } else {
    const auto last = indices.first + std::ssize(indices.values);
    if (last > rank) {
      refuse("indices of dimensions that are not there");
    }
    const auto middle = broadcast_sizes(values, indices);
    out.assign(sizes.begin(), sizes.begin() + indices.first);
    out.insert(out.end(), middle.begin(), middle.end());
    out.insert(out.end(), sizes.begin() + last, sizes.end());
  }
  if (out.size() > 8) {
    refuse("a result of more than 8 dimensions");
  }
  values.set_type(node.output(), out, values.dtype(input));
}

void build_index(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto& sizes = builder.values().sizes(input);
  const auto& out = builder.values().sizes(output);
  const auto from = builder.strided(input);
  const bool along = node.op == Op::take_along;
  auto chosen = indices_of(node);
  Dims middle = out, x_strides = from.strides;
  if (along) {
    chosen.first = wrap(node.as<attr::index>().dim, std::ssize(sizes));
    x_strides[chosen.first] = 0;
  } else {
    middle = broadcast_sizes(builder.values(), chosen);
    const auto at = x_strides.begin() + chosen.first;
    x_strides.insert(
        x_strides.erase(at, at + std::ssize(chosen.values)), middle.size(), 0);
  }
  struct Part {
    kernels::Index index;
    Ref ref;
    Dims strides;
  };
  std::vector<Part> parts;
  std::vector<Ref> touched{from.ref};
  std::map<int64_t, Place> places{{input, from}};
  for (const auto value : chosen.values) {
    const auto dim = chosen.first + std::ssize(parts);
    const auto place = places[value] = builder.strided(value);
    const auto own =
        broadcast_strides(builder.values().sizes(value), place.strides, middle);
    Dims strides(out.size(), 0);
    std::copy(
        own.begin(), own.end(), strides.begin() + (along ? 0 : chosen.first));
    parts.push_back(
        {{.type = index_type(builder.values().dtype(value)),
          .limit = sizes[dim],
          .step = from.strides[dim]},
         place.ref,
         std::move(strides)});
    touched.push_back(place.ref);
  }
  const auto to = places[output] = builder.make_dense(output);
  touched.push_back(to.ref);
  const kernels::IndexArgs args{
      .count = std::ssize(parts),
      .from_back = !along,
      .ndim = std::ssize(out),
      .itemsize = item_size(builder.values().dtype(input))};
  builder.add_kernel(
      node,
      name_of(node.op),
      touched,
      [=,
       x = from.ref,
       sizes = out,
       otherwise = step_in_torch(builder, node, places)](const Frame& frame) {
        kernels::Index indices[kernels::kMostIndices];
        for (size_t i = 0; i < parts.size(); ++i) {
          indices[i] = parts[i].index;
          indices[i].data = frame.at(parts[i].ref);
          indices[i].strides = parts[i].strides.data();
        }
        auto call = args;
        call.x = frame.at(x);
        call.x_strides = x_strides.data();
        call.indices = indices;
        call.out = frame.at(to.ref);
        call.sizes = sizes.data();
        if (!kernels::index(call)) {
          otherwise(frame);
        }
      });
}

void infer_topk(Values& values, const Node& node) {
  const auto input = tensor(node, 0);
  auto sizes = values.sizes(input);
  type_of(values.dtype(input));
  const auto dim = wrap(node.as<attr::topk>().dim, std::ssize(sizes));
  const auto many = node.as<attr::topk>().k;
  if (many < 1 || many > sizes[dim]) {
    refuse("a choice of " + std::to_string(many) + " elements");
  }
  sizes[dim] = many;
  values.set_type(node.output(), sizes, c10::ScalarType::Long);
}

// torch's own loop, since it decides which of equal elements come first.
void build_topk(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto& sizes = builder.values().sizes(input);
  const auto dim = wrap(node.as<attr::topk>().dim, std::ssize(sizes));
  const auto many = node.as<attr::topk>().k;
  const bool largest = node.as<attr::topk>().largest,
             sorted = node.as<attr::topk>().sorted;
  const auto inner = count(Dims(sizes.begin() + dim + 1, sizes.end()));
  const auto size = sizes[dim], lines = count(sizes) / size;
  const bool wide = builder.values().dtype(input) == kFloat;
  const auto bytes = item_size(builder.values().dtype(input));
  const auto from = builder.dense(input);
  const auto to = builder.make_dense(output);
  builder.add_kernel(node, "topk", {from.ref, to.ref}, [=](const Frame& frame) {
    auto* const x = frame.at<char>(from.ref);
    auto* const out = frame.at<char>(to.ref);
    const auto grain = std::max<int64_t>(1, 4096 / size);
    at::parallel_for(0, lines, grain, [&](int64_t begin, int64_t end) {
      std::vector<int64_t> values(many); // that nobody reads
      const int64_t strides[] = {0, 0, 0};
      for (auto line = begin; line < end; ++line) {
        const auto outer = line / inner, column = line % inner;
        char* data[] = {
            reinterpret_cast<char*>(values.data()),
            out + (outer * many * inner + column) * sizeof(int64_t),
            x + (outer * size * inner + column) * bytes};
        const auto run = wide ? topk_impl_loop<float, float>
                              : topk_impl_loop<c10::BFloat16, float>;
        run(1, inner, inner, many, size, largest, sorted, data, strides, 1);
      }
    });
  });
}

} // namespace at::native::zendnn::plan
