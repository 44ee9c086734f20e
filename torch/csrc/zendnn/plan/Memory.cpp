// Operators that move data: embeddings, concatenation, padding, rolling,
// gathering.
#include <torch/csrc/zendnn/plan/Operators.h>

#include <ATen/native/zendnn/kernels/embedding.h>
#include <ATen/native/zendnn/kernels/memory.h>

#include <algorithm>
#include <cstring>

namespace at::native::zendnn::plan {
namespace {

constexpr const char* kOutOfRange = "index out of range in self";

// From the last dimension on, what is added before and after.
Dims pads_of(const Builder& builder, const Node& node) {
  Dims pads;
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    pads.push_back(builder.number(node.inputs[i]));
  }
  return pads;
}

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
  if (name == "sum") {
    return kernels::Reduction::sum;
  }
  if (name == "mean") {
    return kernels::Reduction::mean;
  }
  if (name == "max") {
    return kernels::Reduction::max;
  }
  refuse("an embedding bag's mode " + name);
}

void check_table(const Builder& builder, int64_t table) {
  type_of(builder.dtype(table));
  if (builder.sizes(table).size() != 2) {
    refuse("an embedding table that is no matrix");
  }
}

int64_t distance(const Builder& builder, int64_t value, const Place& place) {
  return row_stride(builder.sizes(value), place.strides)
      .value_or(builder.sizes(value).back());
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
  bags.count = static_cast<size_t>(node.integer("count", 1));
  const auto mode = node.word("mode", "sum");
  bags.each = mode == "each";
  bags.mode = bags.each ? kernels::Reduction::sum : reduction(mode);
  bags.last_offset = node.integer("last_offset", 0) != 0;
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

// Throws Refused unless operands 1 and 2 are constant indices within the
// limits.
void check_pairs(
    const Builder& builder,
    const Node& node,
    int64_t rows,
    int64_t columns) {
  for (const auto& [operand, limit] : {std::pair{1, rows}, {2, columns}}) {
    const auto* index = builder.constant(tensor(node, operand));
    if (index == nullptr || index->dim() != 1 ||
        index->scalar_type() != c10::ScalarType::Long ||
        index->numel() != builder.sizes(tensor(node, 1))[0]) {
      refuse("a gathering by computed indices");
    }
    const auto* numbers = index->const_data_ptr<int64_t>();
    for (int64_t i = 0; i < index->numel(); ++i) {
      const auto number = numbers[i * index->stride(0)];
      if (number < 0 || number >= limit) {
        refuse("a gathering from outside the tensor");
      }
    }
  }
}

} // namespace

void infer_embedding(Builder& builder, const Node& node) {
  const auto table = tensor(node, 0), ids = tensor(node, 1);
  check_table(builder, table);
  id_type(builder.dtype(ids));
  auto sizes = builder.sizes(ids);
  sizes.push_back(builder.sizes(table)[1]);
  builder.set_type(node.output(), sizes, builder.dtype(table));
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
  args.out_stride = distance(builder, output, to);
  args.dtype = kernel_type(builder.dtype(table));
  builder.add_kernel(
      node,
      "embedding",
      {from.ref, index.ref, to.ref},
      [args, from = from.ref, index = index.ref, to = to.ref](
          const Frame& frame) {
        auto call = args;
        call.table = frame.at(from);
        call.ids = frame.at(index);
        call.out = frame.at(to);
        TORCH_CHECK_INDEX(kernels::embedding(call), kOutOfRange);
      });
}

void infer_embedding_bags(Builder& builder, const Node& node) {
  const auto bags = bags_of(node);
  if (node.outputs.size() != bags.count) {
    refuse("as many embedding bags as there are no results");
  }
  for (size_t i = 0; i < bags.count; ++i) {
    const auto table = bags.tables[i], ids = bags.ids[i];
    check_table(builder, table);
    id_type(builder.dtype(ids));
    auto sizes = builder.sizes(ids);
    if (bags.offsets[i] >= 0) {
      const auto& offsets = builder.sizes(bags.offsets[i]);
      id_type(builder.dtype(bags.offsets[i]));
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
          builder.dtype(weights) != builder.dtype(table) ||
          count(builder.sizes(weights)) != count(builder.sizes(ids))) {
        refuse("an embedding bag with other weights");
      }
    }
    sizes.push_back(builder.sizes(table)[1]);
    builder.set_type(node.outputs[i], sizes, builder.dtype(table));
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
    bag.out_stride = distance(builder, output, result);
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

void infer_cat(Builder& builder, const Node& node) {
  auto out = builder.sizes(tensor(node, 0));
  const auto dtype = builder.dtype(tensor(node, 0));
  const auto dim =
      wrap(node.integer("dim", 0), static_cast<int64_t>(out.size()));
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    auto sizes = builder.sizes(tensor(node, i));
    if (sizes.size() != out.size() || builder.dtype(tensor(node, i)) != dtype) {
      refuse("a concatenation of different tensors");
    }
    out[dim] += sizes[dim];
    sizes[dim] = out[dim];
    if (sizes != out) {
      refuse("a concatenation of different sizes");
    }
  }
  type_of(dtype);
  builder.set_type(node.output(), out, dtype);
}

void infer_stack(Builder& builder, const Node& node) {
  auto out = builder.sizes(tensor(node, 0));
  const auto dtype = builder.dtype(tensor(node, 0));
  type_of(dtype);
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (builder.sizes(tensor(node, i)) != out ||
        builder.dtype(tensor(node, i)) != dtype) {
      refuse("a stack of different tensors");
    }
  }
  const auto dim =
      wrap(node.integer("dim", 0), static_cast<int64_t>(out.size()) + 1);
  out.insert(out.begin() + dim, static_cast<int64_t>(node.inputs.size()));
  builder.set_type(node.output(), out, dtype);
}

void build_cat(Builder& builder, const Node& node) {
  builder.concatenate(node);
}

void infer_pad(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0);
  auto sizes = builder.sizes(input);
  const auto pads = pads_of(builder, node);
  type_of(builder.dtype(input));
  if (pads.size() % 2 != 0 || pads.size() > 2 * sizes.size()) {
    refuse("a padding of dimensions that are not there");
  }
  for (size_t i = 0; i < pads.size(); ++i) {
    if (pads[i] < 0) {
      refuse("a negative padding");
    }
    auto& size = sizes[sizes.size() - 1 - i / 2];
    if (__builtin_add_overflow(size, pads[i], &size)) {
      refuse("a padding of " + std::to_string(pads[i]));
    }
  }
  builder.set_type(node.output(), sizes, builder.dtype(input));
}

void build_pad(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto pads = pads_of(builder, node);
  if (std::all_of(
          pads.begin(), pads.end(), [](int64_t pad) { return pad == 0; })) {
    builder.set_place(output, builder.place(input));
    return;
  }
  const auto from = builder.strided(input);
  const auto to = builder.make_dense(output);
  const auto& sizes = builder.sizes(input);
  const auto bytes = item_size(builder.dtype(input));
  int64_t skip = 0;
  for (size_t i = 0; i < pads.size(); i += 2) {
    skip += pads[i] * to.strides[sizes.size() - 1 - i / 2];
  }
  const auto value = static_cast<float>(node.real("value", 0));
  const bool wide = bytes == 4;
  const c10::BFloat16 narrow(value);
  builder.add_kernel(
      node,
      "pad",
      {from.ref, to.ref},
      [from,
       to,
       sizes,
       bytes,
       skip,
       value,
       narrow,
       wide,
       total = count(builder.sizes(output))](const Frame& frame) {
        if (wide) {
          std::fill_n(frame.at<float>(to.ref), total, value);
        } else {
          std::fill_n(frame.at<c10::BFloat16>(to.ref), total, narrow);
        }
        kernels::copy_strided(
            {.src = frame.at(from.ref),
             .src_strides = from.strides.data(),
             .dst = frame.at<char>(to.ref) + skip * bytes,
             .dst_strides = to.strides.data(),
             .sizes = sizes.data(),
             .ndim = static_cast<int64_t>(sizes.size()),
             .itemsize = bytes});
      });
}

void infer_roll(Builder& builder, const Node& node) {
  const auto shifts = node.integers("shifts"), dims = node.integers("dims");
  const auto rank = static_cast<int64_t>(builder.sizes(tensor(node, 0)).size());
  if (shifts.size() != dims.size()) {
    refuse("shifts of other dimensions");
  }
  for (const auto dim : dims) {
    wrap(dim, rank);
  }
  infer_same(builder, node);
}

void build_roll(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto& sizes = builder.sizes(input);
  const auto rank = static_cast<int64_t>(sizes.size());
  const auto shifts = node.integers("shifts"), dims = node.integers("dims");
  Dims first(sizes.size(), 0); // where the first element goes
  for (size_t i = 0; i < dims.size(); ++i) {
    const auto dim = wrap(dims[i], rank);
    const auto size = sizes[dim];
    first[dim] = ((first[dim] + shifts[i] % size) % size + size) % size;
  }
  const auto from = builder.strided(input);
  const auto to = builder.make_dense(output);
  const auto bytes = item_size(builder.dtype(input));
  // What moves on within a dimension and what wraps around to its start are
  // copied apart.
  struct Part {
    Dims sizes;
    Place from, to;
  };
  std::vector<Part> parts{{sizes, from, to}};
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (first[dim] == 0) {
      continue;
    }
    auto wrapped = parts;
    const auto moved = sizes[dim] - first[dim];
    for (auto& part : parts) {
      part.sizes[dim] = moved;
      part.to.ref.offset += first[dim] * to.strides[dim] * bytes;
    }
    for (auto& part : wrapped) {
      part.sizes[dim] = first[dim];
      part.from.ref.offset += moved * from.strides[dim] * bytes;
    }
    parts.insert(parts.end(), wrapped.begin(), wrapped.end());
  }
  builder.add_kernel(
      node, "roll", {from.ref, to.ref}, [parts, bytes](const Frame& frame) {
        for (const auto& part : parts) {
          kernels::copy_strided(
              {.src = frame.at(part.from.ref),
               .src_strides = part.from.strides.data(),
               .dst = frame.at(part.to.ref),
               .dst_strides = part.to.strides.data(),
               .sizes = part.sizes.data(),
               .ndim = static_cast<int64_t>(part.sizes.size()),
               .itemsize = bytes});
        }
      });
}

void infer_gather_pairs(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0);
  auto sizes = builder.sizes(input);
  type_of(builder.dtype(input));
  if (sizes.size() < 2 || sizes.size() > 3) {
    refuse("a gathering of a tensor with other dimensions");
  }
  check_pairs(builder, node, sizes[sizes.size() - 2], sizes.back());
  sizes.pop_back();
  sizes.back() = builder.sizes(tensor(node, 1))[0];
  builder.set_type(node.output(), sizes, builder.dtype(input));
}

void build_gather_pairs(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto& sizes = builder.sizes(input);
  const auto from = builder.strided(input);
  const auto rows = builder.dense(tensor(node, 1)),
             columns = builder.dense(tensor(node, 2));
  const auto to = builder.make_rows(output);
  const auto rank = sizes.size();
  kernels::GatherPairsArgs args;
  args.batch = rank == 3 ? sizes[0] : 1;
  args.rows = sizes[rank - 2];
  args.cols = sizes[rank - 1];
  args.batch_stride = rank == 3 ? from.strides[0] : 0;
  args.row_stride = from.strides[rank - 2];
  args.col_stride = from.strides[rank - 1];
  args.pairs = builder.sizes(output).back();
  args.out_stride = distance(builder, output, to);
  args.dtype = kernel_type(builder.dtype(input));
  builder.add_kernel(
      node,
      "gather_pairs",
      {from.ref, rows.ref, columns.ref, to.ref},
      [args,
       from = from.ref,
       rows = rows.ref,
       columns = columns.ref,
       to = to.ref](const Frame& frame) {
        auto call = args;
        call.x = frame.at(from);
        call.row = frame.at<int64_t>(rows);
        call.col = frame.at<int64_t>(columns);
        call.out = frame.at(to);
        TORCH_CHECK_INDEX(kernels::gather_pairs(call), kOutOfRange);
      });
}

void infer_pairwise_dot(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0);
  const auto& sizes = builder.sizes(input);
  type_of(builder.dtype(input));
  if (sizes.size() != 3 || sizes[1] > 64) {
    refuse("an interaction of more than 64 features");
  }
  check_pairs(builder, node, sizes[1], sizes[1]);
  builder.set_type(
      node.output(),
      {sizes[0], builder.sizes(tensor(node, 1))[0]},
      builder.dtype(input));
}

void build_pairwise_dot(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), output = node.output();
  const auto& sizes = builder.sizes(input);
  const auto from = builder.with_rows(input);
  const auto rows = builder.dense(tensor(node, 1)),
             columns = builder.dense(tensor(node, 2));
  const auto to = builder.make_rows(output);
  kernels::PairwiseDotArgs args;
  args.batch_stride = from.strides[0];
  args.feature_stride = from.strides[1];
  args.batch = sizes[0];
  args.features = sizes[1];
  args.dim = sizes[2];
  args.pairs = builder.sizes(output)[1];
  args.out_stride = distance(builder, output, to);
  args.dtype = kernel_type(builder.dtype(input));
  builder.add_kernel(
      node,
      "pairwise_dot",
      {from.ref, rows.ref, columns.ref, to.ref},
      [args,
       from = from.ref,
       rows = rows.ref,
       columns = columns.ref,
       to = to.ref](const Frame& frame) {
        auto call = args;
        call.x = frame.at(from);
        call.row = frame.at<int64_t>(rows);
        call.col = frame.at<int64_t>(columns);
        call.out = frame.at(to);
        TORCH_CHECK_INDEX(kernels::pairwise_dot(call), kOutOfRange);
      },
      2.0 * static_cast<double>(args.batch * args.pairs * args.dim));
}

} // namespace at::native::zendnn::plan
