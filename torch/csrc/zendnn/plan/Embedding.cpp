// Embeddings and bags of them.
#include <torch/csrc/zendnn/plan/Kernel.h>

#include <ATen/native/zendnn/kernels/embedding.h>

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

kernels::Reduction reduction(const std::string& name) {
  using kernels::Reduction;
  static const std::unordered_map<std::string, Reduction> table{
      {"sum", Reduction::sum},
      {"mean", Reduction::mean},
      {"max", Reduction::max}};
  return find_row(table, name, "an embedding bag's mode");
}

void check_table(const Values& values, int64_t table) {
  type_of(values.dtype(table));
  if (values.sizes(table).size() != 2) {
    refuse("an embedding table that is no matrix");
  }
}

// The tables come first, then as many tensors of ids, then as many of offsets,
// then as many of weights. Without offsets, a row of ids is a bag, or each id
// is one.
struct Bags {
  size_t count;
  bool each, last_offset;
  kernels::Reduction mode;
  std::vector<int64_t> tables, ids, offsets, weights; // -1: none
};

Bags bags_of(const Node& node) {
  Bags bags;
  bags.count = static_cast<size_t>(node.get(attr::embedding_bags::count));
  const auto mode = node.get(attr::embedding_bags::mode);
  bags.each = mode == "each";
  bags.mode = bags.each ? kernels::Reduction::sum : reduction(mode);
  bags.last_offset = node.get(attr::embedding_bags::last_offset);
  for (size_t i = 0; i < bags.count; ++i) {
    const auto operand = [&](size_t group) {
      const auto place = group * bags.count + i;
      return has(node, place) ? tensor(node, place) : -1;
    };
    bags.tables.push_back(tensor(node, i));
    bags.ids.push_back(tensor(node, bags.count + i));
    bags.offsets.push_back(operand(2));
    bags.weights.push_back(operand(3));
  }
  return bags;
}

} // namespace

void infer_embedding(Values& values, const Node& node) {
  const auto table = tensor(node, 0), ids = tensor(node, 1);
  check_table(values, table);
  id_type(values.dtype(ids));
  auto sizes = values.sizes(ids);
  sizes.push_back(values.sizes(table)[1]);
  values.set_type(node.output(), sizes, values.dtype(table));
}

void build_embedding(Builder& builder, const Node& node) {
  const auto table = tensor(node, 0), ids = tensor(node, 1),
             output = node.output();
  const auto from = builder.with_rows(table);
  const auto index = builder.dense(ids);
  const auto to = builder.make_rows(output);
  kernels::EmbeddingArgs args;
  args.rows = builder.sizes(table)[0];
  args.dim = builder.sizes(table)[1];
  args.row_stride = from.strides[0];
  args.id_type = id_type(builder.dtype(ids));
  args.count = count(builder.sizes(ids));
  args.out_stride = *row_stride(builder.sizes(output), to.strides);
  args.dtype = kernel_type(builder.dtype(table));
  using Args = kernels::EmbeddingArgs;
  add_kernel(
      builder,
      node,
      "embedding",
      kernels::embedding,
      args,
      {{&Args::table, from.ref},
       {&Args::ids, index.ref},
       {&Args::out, to.ref}});
}

void infer_embedding_bags(Values& values, const Node& node) {
  const auto bags = bags_of(node);
  if (node.outputs.size() != bags.count) {
    refuse("as many embedding bags as there are no results");
  }
  for (size_t i = 0; i < bags.count; ++i) {
    const auto table = bags.tables[i], ids = bags.ids[i];
    check_table(values, table);
    id_type(values.dtype(ids));
    auto sizes = values.sizes(ids);
    if (bags.offsets[i] >= 0) {
      const auto& offsets = values.sizes(bags.offsets[i]);
      id_type(values.dtype(bags.offsets[i]));
      if (bags.each || sizes.size() != 1 || offsets.size() != 1) {
        refuse("an embedding bag with other offsets");
      }
      sizes[0] = offsets[0] - (bags.last_offset ? 1 : 0);
      if (sizes[0] < 1) {
        refuse("an empty tensor");
      }
    } else if (!bags.each) {
      if (sizes.size() != 2) {
        refuse("an embedding bag whose indices are no matrix");
      }
      sizes.pop_back();
    }
    if (const auto weights = bags.weights[i]; weights >= 0) {
      if (bags.each || bags.mode != kernels::Reduction::sum ||
          values.dtype(weights) != values.dtype(table) ||
          count(values.sizes(weights)) != count(values.sizes(ids))) {
        refuse("an embedding bag with other weights");
      }
    }
    sizes.push_back(values.sizes(table)[1]);
    values.set_type(node.outputs[i], sizes, values.dtype(table));
  }
}

void build_embedding_bags(Builder& builder, const Node& node) {
  const auto bags = bags_of(node);
  std::vector<kernels::EmbeddingBag> tables(bags.count);
  std::vector<Ref> from, index, offsets(bags.count), weights(bags.count), to,
      touched;
  for (size_t i = 0; i < bags.count; ++i) {
    const auto table = bags.tables[i], ids = bags.ids[i],
               output = node.outputs[i];
    auto& bag = tables[i];
    const auto rows = builder.with_rows(table);
    const auto places = bags.each || bags.offsets[i] >= 0
                            ? builder.dense(ids)
                            : builder.with_rows(ids);
    const auto result = builder.make_rows(output);
    bag.rows = builder.sizes(table)[0];
    bag.dim = builder.sizes(table)[1];
    bag.row_stride = rows.strides[0];
    bag.id_type = id_type(builder.dtype(ids));
    bag.bags = count(builder.sizes(output)) / bag.dim;
    if (bags.offsets[i] >= 0) {
      bag.ids_count = builder.sizes(ids)[0];
      offsets[i] = builder.dense(bags.offsets[i]).ref;
      bag.offset_type = id_type(builder.dtype(bags.offsets[i]));
      bag.last_offset = bags.last_offset;
    } else if (bags.each) {
      bag.ids_stride = bag.bag_size = 1;
    } else {
      bag.ids_stride = places.strides[0];
      bag.bag_size = builder.sizes(ids)[1];
    }
    if (bags.weights[i] >= 0) {
      weights[i] = builder.dense(bags.weights[i]).ref;
    }
    bag.out_stride = *row_stride(builder.sizes(output), result.strides);
    bag.mode = bags.mode;
    bag.dtype = kernel_type(builder.dtype(table));
    from.push_back(rows.ref);
    index.push_back(places.ref);
    to.push_back(result.ref);
  }
  for (const auto* refs : {&from, &index, &offsets, &weights, &to}) {
    touched.insert(touched.end(), refs->begin(), refs->end());
  }
  builder.add_kernel(
      node,
      bags.count > 1 ? "embedding_bags" : "embedding_bag",
      touched,
      [tables, from, index, to, offsets, weights](const Frame& frame) {
        auto calls = tables;
        for (size_t i = 0; i < calls.size(); ++i) {
          calls[i].table = frame.at(from[i]);
          calls[i].ids = frame.at(index[i]);
          calls[i].out = frame.at(to[i]);
          calls[i].offsets = frame.at(offsets[i]);
          calls[i].weights = frame.at(weights[i]);
        }
        TORCH_CHECK_INDEX(
            kernels::embedding_bags(
                {.tables = calls.data(),
                 .count = static_cast<int64_t>(calls.size())}),
            kOutOfRange);
      });
}

} // namespace at::native::zendnn::plan
