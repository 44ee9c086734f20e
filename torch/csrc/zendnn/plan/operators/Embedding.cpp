// Embeddings and bags of them.
#include <torch/csrc/zendnn/plan/describe/Operators.h>

#include <ATen/native/zendnn/kernels/embedding.h>

#include <map>
#include <vector>

namespace at::native::zendnn::plan {
namespace {

kernels::IdType id_type(c10::ScalarType dtype) {
  if (dtype == c10::ScalarType::Long) {
    return kernels::IdType::int64;
  }
  if (dtype == c10::ScalarType::Int) {
    return kernels::IdType::int32;
  }
  refuse(std::string("indices of ") + c10::toString(dtype));
}

kernels::Reduction mode_of(const Node& node) {
  return node.op == Op::embedding ? kernels::Reduction::none
                                  : node.as<attr::embedding_bags>().mode;
}

// Values; -1: none.
struct Bag {
  int64_t table, ids, offsets, weights, output;
};

// The operands are tables, as many tensors of ids, as many of offsets, and as
// many of weights. Without offsets, a row of ids is a bag, or each id is one.
std::vector<Bag> bags_of(const Node& node) {
  const auto all = static_cast<size_t>(node.as<attr::embedding_bags>().count);
  if (node.outputs.size() != all) {
    refuse("embedding bags with another number of results");
  }
  std::vector<Bag> bags;
  for (size_t i = 0; i < all; ++i) {
    const auto optional = [&](size_t index) {
      return has(node, index) ? tensor(node, index) : -1;
    };
    bags.push_back(
        {.table = tensor(node, i),
         .ids = tensor(node, all + i),
         .offsets = optional(2 * all + i),
         .weights = optional(3 * all + i),
         .output = node.outputs[i]});
  }
  return bags;
}

} // namespace

void infer_embedding_bags(Values& values, const Node& node) {
  const auto mode = mode_of(node);
  const bool each = mode == kernels::Reduction::none;
  for (const auto& bag : bags_of(node)) {
    const auto& table = values.sizes(bag.table);
    const auto dtype = values.dtype(bag.table);
    type_of(dtype);
    id_type(values.dtype(bag.ids));
    if (table.size() != 2) {
      refuse("an embedding table that is no matrix");
    }
    auto sizes = values.sizes(bag.ids);
    if (bag.offsets >= 0) {
      const auto& offsets = values.sizes(bag.offsets);
      id_type(values.dtype(bag.offsets));
      if (each || sizes.size() != 1 || offsets.size() != 1) {
        refuse("an embedding bag with other offsets");
      }
      sizes[0] = offsets[0] - node.as<attr::embedding_bags>().last_offset;
      if (sizes[0] < 1) {
        refuse("offsets of no embedding bag");
      }
    } else if (!each) {
      if (sizes.size() != 2) {
        refuse("an embedding bag whose indices are no matrix");
      }
      sizes.pop_back();
    }
    if (bag.weights >= 0 &&
        (mode != kernels::Reduction::sum ||
         values.dtype(bag.weights) != dtype ||
         count(values.sizes(bag.weights)) != count(values.sizes(bag.ids)))) {
      refuse("an embedding bag with other weights");
    }
    sizes.push_back(table[1]);
    values.set_type(bag.output, sizes, dtype);
  }
}

void build_embedding_bags(Builder& builder, const Node& node) {
  const auto mode = mode_of(node);
  const bool each = mode == kernels::Reduction::none;
  struct Part {
    kernels::EmbeddingBag args;
    Ref table, ids, offsets, weights, out;
  };
  std::vector<Part> parts;
  std::vector<Ref> touched;
  std::map<int64_t, Place> places;
  for (const auto& bag : bags_of(node)) {
    const auto table = places[bag.table] = builder.with_rows(bag.table);
    const auto ids = places[bag.ids] = each || bag.offsets >= 0
                                           ? builder.dense(bag.ids)
                                           : builder.with_rows(bag.ids);
    const auto optional = [&](int64_t value) {
      return value >= 0 ? (places[value] = builder.dense(value)).ref : Ref{};
    };
    const auto offsets = optional(bag.offsets), weights = optional(bag.weights);
    const auto out = places[bag.output] = builder.make_rows(bag.output);
    const auto &sizes = builder.values().sizes(bag.table),
               &ids_sizes = builder.values().sizes(bag.ids),
               &out_sizes = builder.values().sizes(bag.output);
    parts.push_back(
        {{.rows = sizes[0],
          .dim = sizes[1],
          .row_stride = table.strides[0],
          .ids_stride = each ? 1 : ids.strides[0],
          .bag_size = each ? 0 : ids_sizes.back(),
          .offset_type = offsets ? id_type(builder.values().dtype(bag.offsets))
                                 : kernels::IdType::int64,
          .last_offset = node.as<attr::embedding_bags>().last_offset,
          .ids_count = count(ids_sizes),
          .id_type = id_type(builder.values().dtype(bag.ids)),
          .bags = count(out_sizes) / sizes[1],
          .out_stride = *row_stride(out_sizes, out.strides),
          .mode = mode,
          .dtype = kernel_type(builder.values().dtype(bag.table))},
         table.ref,
         ids.ref,
         offsets,
         weights,
         out.ref});
    touched.insert(
        touched.end(), {table.ref, ids.ref, offsets, weights, out.ref});
  }
  const auto otherwise = step_in_torch(builder, node, places);
  builder.add_kernel(node, name_of(node.op), touched, [=](const Frame& frame) {
    std::vector<kernels::EmbeddingBag> calls;
    calls.reserve(parts.size());
    for (const auto& part : parts) {
      auto& call = calls.emplace_back(part.args);
      call.table = frame.at(part.table);
      call.ids = frame.at(part.ids);
      call.offsets = frame.at(part.offsets);
      call.weights = frame.at(part.weights);
      call.out = frame.at(part.out);
    }
    if (!kernels::embedding_bags(
            {.tables = calls.data(), .count = std::ssize(calls)})) {
      otherwise(frame);
    }
  });
}

} // namespace at::native::zendnn::plan
