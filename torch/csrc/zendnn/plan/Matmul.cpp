// Linear layers with constant weights, and products of computed matrices.
#include <torch/csrc/zendnn/plan/Operators.h>
#include <torch/csrc/zendnn/plan/PostOps.h>
#include <torch/csrc/zendnn/plan/Primitive.h>

#include <ATen/Parallel.h>
#include <adeep/abstract_types.hpp>

#include <sstream>

namespace at::native::zendnn::plan {
namespace {

using ::zendnn::prop_kind;

constexpr const char* kInnerProduct = "inner product ";

struct Product {
  memory::desc source, weights, bias, result;
};

memory::desc transposed(const memory::desc& of) {
  const auto dims = of.get_dims();
  return {dims, of.get_data_type(), Dims{dims[1], 1}};
}

Primitive make_matmul(
    const Product& p,
    const memory::desc& weights,
    const ::zendnn::primitive_attr& attributes,
    const char* kind) {
  const auto& engine = adeep::engine::cpu_engine();
  const auto desc =
      p.bias.is_zero()
          ? ::zendnn::matmul::primitive_desc(
                engine, p.source, weights, p.result, attributes)
          : ::zendnn::matmul::primitive_desc(
                engine, p.source, weights, p.bias, p.result, attributes);
  return {desc, ::zendnn::matmul(desc), kind};
}

// The same product as an inner product, whose weights are (out, in).
Primitive make_inner_product(
    const Product& p,
    const ::zendnn::primitive_attr& attributes) {
  const auto& engine = adeep::engine::cpu_engine();
  const auto dims = p.weights.get_dims();
  const memory::desc weights(
      Dims{dims[1], dims[0]},
      p.weights.get_data_type(),
      memory::format_tag::any);
  const auto bias =
      p.bias.is_zero()
          ? memory::desc()
          : memory::desc(
                {dims[1]}, p.bias.get_data_type(), memory::format_tag::x);
  const ::zendnn::inner_product_forward::primitive_desc desc(
      engine,
      prop_kind::forward_inference,
      p.source,
      weights,
      bias,
      p.result,
      attributes);
  return {desc, ::zendnn::inner_product_forward(desc), kInnerProduct};
}

// The ways to multiply by constant weights: as they lie, row by row, or packed
// as one of ZenDNN's kernels likes them best.
std::vector<Primitive> ways(
    const Product& p,
    const ::zendnn::primitive_attr& attributes) {
  std::vector<Primitive> found;
  const auto attempt = [&](const auto& make) {
    try {
      auto made = make();
      if (made.source == p.source && made.result == p.result) {
        found.push_back(std::move(made));
      }
    } catch (const ::zendnn::error&) { // not this way
    }
  };
  attempt([&] {
    return make_matmul(p, any_layout(p.weights), attributes, "matmul packed ");
  });
  attempt(
      [&] { return make_matmul(p, p.weights, attributes, "matmul plain "); });
  attempt([&] {
    return make_matmul(
        p, transposed(p.weights), attributes, "matmul row major ");
  });
  attempt([&] { return make_inner_product(p, attributes); });
  return found;
}

// A tensor as a matrix of its rows.
memory::desc
as_rows(const Dims& sizes, c10::ScalarType dtype, int64_t row_stride) {
  const auto columns = sizes.back();
  return {
      Dims{count(sizes) / columns, columns},
      type_of(dtype),
      Dims{row_stride, 1}};
}

// An operand as the product of matrices sees it: of the result's size, its
// rows; one that repeats itself in every row, that row.
std::optional<std::pair<memory::desc, Ref>>
see_rows(Builder& builder, int64_t operand, const Dims& result) {
  const auto& sizes = builder.sizes(operand);
  const auto dtype = builder.dtype(operand);
  if (sizes == result) {
    const auto known = builder.strided(operand);
    if (const auto stride = row_stride(sizes, known.strides)) {
      return std::pair{as_rows(sizes, dtype, *stride), known.ref};
    }
    return std::pair{
        as_rows(sizes, dtype, sizes.back()), builder.dense(operand).ref};
  }
  const auto elements = count(sizes);
  if (elements == 1 || (!sizes.empty() && elements == sizes.back())) {
    return std::pair{
        memory::desc(Dims{1, elements}, type_of(dtype), Dims{elements, 1}),
        builder.dense(operand).ref};
  }
  return std::nullopt;
}

struct Matrices {
  memory::desc desc;
  Ref ref;
};

// All rows of a tensor as one matrix.
Matrices as_all_rows(Builder& builder, int64_t value) {
  const auto& sizes = builder.sizes(value);
  const auto dtype = builder.dtype(value);
  const auto place = builder.strided(value);
  if (const auto row = row_stride(sizes, place.strides)) {
    return {as_rows(sizes, dtype, *row), place.ref};
  }
  if (sizes.size() == 2 && place.strides[0] == 1 &&
      place.strides[1] >= sizes[0]) { // transposed
    return {memory::desc(sizes, type_of(dtype), place.strides), place.ref};
  }
  return {as_rows(sizes, dtype, sizes.back()), builder.dense(value).ref};
}

// The last two dimensions as matrices that lie evenly apart, one for each of
// the batch's elements; copied where they do not, or where some are repeated.
Matrices as_matrices(Builder& builder, int64_t value, const Dims& batch) {
  const auto& sizes = builder.sizes(value);
  const auto type = type_of(builder.dtype(value));
  const auto place = builder.strided(value);
  const auto rows = sizes.end()[-2], columns = sizes.back();
  Dims whole = batch, steps(batch.size(), 0);
  const auto extra =
      batch.size() + 2 - std::min(sizes.size(), batch.size() + 2);
  for (size_t i = extra; i < batch.size(); ++i) {
    steps[i] = sizes[i - extra] == 1 ? 0 : place.strides[i - extra];
  }
  whole.insert(whole.end(), {rows, columns});
  steps.insert(steps.end(), {place.strides.end()[-2], place.strides.back()});
  const auto matrices = count(batch);
  // The distance between matrices when it is one and the same.
  int64_t apart = 0, next = 0;
  bool even = true;
  for (auto i = static_cast<int64_t>(batch.size()) - 1; i >= 0; --i) {
    if (batch[i] == 1) {
      continue;
    }
    even = even && steps[i] > 0 && (apart == 0 || steps[i] == next);
    apart = apart == 0 ? steps[i] : apart;
    next = steps[i] * batch[i];
  }
  auto row = steps.end()[-2], column = steps.back();
  // Strides of single rows and columns say nothing.
  column = columns == 1 ? 1 : column;
  row = rows == 1 ? (column == 1 ? columns : 1) : row;
  const bool plain =
      (column == 1 && row >= columns) || (row == 1 && column >= rows);
  const auto reach = std::max(row * rows, column * columns);
  auto ref = place.ref;
  if (!even || !plain || (matrices > 1 && apart < reach)) {
    const Place to{
        .ref = builder.scratch(count(whole) * item_size(builder.dtype(value))),
        .strides = row_major_strides(whole)};
    builder.copy_as(
        whole,
        item_size(builder.dtype(value)),
        {.ref = place.ref, .strides = steps},
        to);
    ref = to.ref;
    row = columns;
    column = 1;
    apart = rows * columns;
  }
  if (batch.empty()) {
    return {memory::desc(Dims{rows, columns}, type, Dims{row, column}), ref};
  }
  apart = matrices == 1 ? std::max(row * rows, column * columns) : apart;
  return {
      memory::desc(
          Dims{matrices, rows, columns}, type, Dims{apart, row, column}),
      ref};
}

} // namespace

void infer_linear(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), weight = tensor(node, 1);
  auto out = builder.sizes(input);
  const auto& w = builder.sizes(weight);
  type_of(builder.dtype(input));
  if (builder.constant(weight) == nullptr || w.size() != 2) {
    refuse("a linear layer whose weights are computed");
  }
  if (out.empty() || out.back() != w[1] ||
      builder.dtype(input) != builder.dtype(weight)) {
    refuse("a linear layer whose input and weights disagree");
  }
  out.back() = w[0];
  const auto dtype = node.word("dtype");
  builder.set_type(
      node.output(),
      out,
      dtype.empty() ? builder.dtype(input) : dtype_named(dtype));
  check_post_ops(builder, node);
}

void build_linear(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0), weight = tensor(node, 1),
             output = node.output();
  const auto& in_sizes = builder.sizes(input);
  const auto& out_sizes = builder.sizes(output);
  const auto dtype = builder.dtype(input);

  auto from = builder.strided(input);
  auto row = row_stride(in_sizes, from.strides);
  if (!row) {
    from = builder.dense(input);
    row = in_sizes.back();
  }
  Product p;
  p.source = as_rows(in_sizes, dtype, *row);
  const auto& constant = *builder.constant(weight);
  const auto outputs = constant.size(0), inputs = constant.size(1);
  p.weights = memory::desc(
      Dims{inputs, outputs},
      type_of(dtype),
      Dims{constant.stride(1), constant.stride(0)});
  Ref bias_ref;
  if (node.inputs.size() > 2 && node.inputs[2]) {
    const auto bias = tensor(node, 2);
    p.bias = memory::desc(
        Dims{1, outputs}, type_of(builder.dtype(bias)), Dims{outputs, 1});
    bias_ref = builder.dense(bias).ref;
  }

  const double flops =
      2.0 * static_cast<double>(count(out_sizes)) * static_cast<double>(inputs);
  std::vector<Addition> additions{Addition::read, Addition::none};
  if (!builder.target(output) && can_accumulate(builder, node)) {
    additions.insert(additions.begin(), Addition::accumulate);
  }
  for (const auto addition : additions) {
    const auto attached = attach(builder, node, addition, [&](int64_t operand) {
      return see_rows(builder, operand, out_sizes);
    });
    Place place;
    int64_t out_row = outputs;
    if (attached.accumulator) {
      place = *attached.accumulator;
      const auto stride = row_stride(out_sizes, place.strides);
      if (place.blocked || !stride) {
        continue;
      }
      out_row = *stride;
    } else if (const auto slice = builder.target(output);
               slice && !slice->blocked) {
      out_row = row_stride(out_sizes, slice->strides).value_or(outputs);
    }
    p.result = as_rows(out_sizes, builder.dtype(output), out_row);
    const auto found = ways(p, attached.attributes);
    if (found.empty()) {
      continue;
    }
    size_t chosen = 0;
    if (found.size() > 1) {
      std::ostringstream key;
      key << "linear " << p.source.get_dims() << *row << 'x' << outputs << ' '
          << out_row << ' ' << c10::toString(dtype)
          << c10::toString(builder.dtype(output)) << p.bias.is_zero()
          << static_cast<int>(addition) << constant.strides()
          << post_op_key(builder, node) << " threads " << at::get_num_threads();
      std::vector<Candidate> candidates;
      for (const auto& made : found) {
        candidates.push_back(as_candidate(made, p.bias, attached.arguments));
      }
      chosen = choose(key.str(), candidates, builder.tuning_seconds());
    }
    const auto& made = found[chosen];
    if (attached.accumulator) {
      builder.set_place(output, place);
    } else {
      place = builder.make_rows(output);
    }
    auto weights = p.weights;
    memory::desc bias = p.bias;
    if (made.name.starts_with(kInnerProduct)) { // weights are (out, in)
      weights = memory::desc(
          Dims{outputs, inputs},
          type_of(dtype),
          Dims{constant.stride(0), constant.stride(1)});
      if (!bias.is_zero()) {
        bias = memory::desc(
            {outputs}, p.bias.get_data_type(), memory::format_tag::x);
      }
    }
    auto arguments = attached.arguments;
    arguments.insert(
        arguments.end(),
        {{ZENDNN_ARG_SRC, made.source, from.ref},
         {ZENDNN_ARG_WEIGHTS,
          made.weights,
          builder.packed(weight, weights, made.weights)},
         {ZENDNN_ARG_DST, made.result, place.ref}});
    if (!bias.is_zero()) {
      arguments.push_back({ZENDNN_ARG_BIAS, bias, bias_ref});
    }
    const auto workspace = static_cast<int64_t>(made.workspace.get_size());
    if (workspace > 0) {
      arguments.push_back(
          {ZENDNN_ARG_SCRATCHPAD, made.workspace, builder.scratch(workspace)});
    }
    builder.add_primitive(node, made.run, made.name, arguments, flops);
    apply_rest(builder, node, attached.taken);
    return;
  }
  refuse("a linear layer that ZenDNN does not do");
}

void infer_matmul(Builder& builder, const Node& node) {
  const auto& a = builder.sizes(tensor(node, 0));
  const auto& b = builder.sizes(tensor(node, 1));
  const auto dtype = builder.dtype(tensor(node, 0));
  type_of(dtype);
  if (a.size() < 2 || b.size() < 2 || a.size() > 6 || b.size() > 6) {
    refuse("a matrix product with vectors");
  }
  if (a.back() != b[b.size() - 2] || dtype != builder.dtype(tensor(node, 1))) {
    refuse("a matrix product whose operands disagree");
  }
  const auto rank = std::max(a.size(), b.size());
  Dims out(rank);
  for (size_t i = 0; i + 2 < rank; ++i) {
    const auto left = i + a.size() < rank ? 1 : a[i + a.size() - rank];
    const auto right = i + b.size() < rank ? 1 : b[i + b.size() - rank];
    if (left != right && left != 1 && right != 1) {
      refuse("a matrix product whose batches disagree");
    }
    out[i] = left == 1 ? right : left;
  }
  out[rank - 2] = a[a.size() - 2];
  out[rank - 1] = b.back();
  builder.set_type(node.output(), out, dtype);
  check_post_ops(builder, node);
}

void build_matmul(Builder& builder, const Node& node) {
  const auto output = node.output();
  const auto left = tensor(node, 0), right = tensor(node, 1);
  const auto& out_sizes = builder.sizes(output);
  const auto& right_sizes = builder.sizes(right);
  // A matrix for all batches: one product of all rows.
  const bool shared =
      count(right_sizes) == right_sizes.back() * right_sizes.end()[-2];
  const Dims batch =
      shared ? Dims() : Dims(out_sizes.begin(), out_sizes.end() - 2);
  const auto a =
      shared ? as_all_rows(builder, left) : as_matrices(builder, left, batch);
  const auto b = as_matrices(builder, right, batch);
  const auto rows = a.desc.get_dims();
  Dims c_sizes = rows;
  c_sizes.back() = out_sizes.back();
  const memory::desc c(
      c_sizes, type_of(builder.dtype(output)), row_major_strides(c_sizes));
  const double flops = 2.0 * static_cast<double>(count(out_sizes)) *
                       static_cast<double>(builder.sizes(left).back());
  // Operands of post-ops have the result's dimensions, which are not the
  // product's: from the first of them on, post-ops run on their own.
  for (const auto addition : {Addition::read, Addition::none}) {
    const auto attached =
        attach(builder, node, addition, [](int64_t) { return std::nullopt; });
    try {
      const ::zendnn::matmul::primitive_desc desc(
          adeep::engine::cpu_engine(), a.desc, b.desc, c, attached.attributes);
      const auto workspace = desc.scratchpad_desc();
      builder.add_primitive(
          node,
          ::zendnn::matmul(desc),
          std::string("matmul ") + desc.impl_info_str(),
          {{ZENDNN_ARG_SRC, a.desc, a.ref},
           {ZENDNN_ARG_WEIGHTS, b.desc, b.ref},
           {ZENDNN_ARG_DST, c, builder.make_dense(output).ref},
           {ZENDNN_ARG_SCRATCHPAD,
            workspace,
            builder.scratch(static_cast<int64_t>(workspace.get_size()))}},
          flops);
      return apply_rest(builder, node, attached.taken);
    } catch (const ::zendnn::error&) {
      continue;
    }
  }
  refuse("a matrix product that ZenDNN does not do");
}

} // namespace at::native::zendnn::plan
