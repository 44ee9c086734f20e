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
  const auto desc = p.bias.is_zero()
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
  const auto bias = p.bias.is_zero()
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
    return make_matmul(
        p, any_layout(p.weights), attributes, "matmul packed ");
  });
  attempt([&] { return make_matmul(p, p.weights, attributes, "matmul plain "); });
  attempt([&] {
    return make_matmul(
        p, transposed(p.weights), attributes, "matmul row major ");
  });
  attempt([&] { return make_inner_product(p, attributes); });
  return found;
}

// A tensor as a matrix of its rows.
memory::desc as_rows(
    const Dims& sizes,
    c10::ScalarType dtype,
    int64_t row_stride) {
  const auto columns = sizes.back();
  return {
      Dims{count(sizes) / columns, columns},
      type_of(dtype),
      Dims{row_stride, 1}};
}

// An operand as the product of matrices sees it: of the result's size, its rows;
// one that repeats itself in every row, that row.
std::optional<std::pair<memory::desc, Ref>> see_rows(
    Builder& builder,
    int64_t operand,
    const Dims& result) {
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

  const double flops = 2.0 * static_cast<double>(count(out_sizes)) *
      static_cast<double>(inputs);
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
          << c10::toString(builder.dtype(output))
          << p.bias.is_zero() << static_cast<int>(addition)
          << constant.strides() << post_op_key(builder, node) << " threads "
          << at::get_num_threads();
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
  const auto& out_sizes = builder.sizes(output);
  // One of a matrix's dimensions must be contiguous.
  const auto see = [&](int64_t value) {
    auto place = builder.addressable(value);
    const auto& sizes = builder.sizes(value);
    const auto last = sizes.size() - 1;
    if (place.strides[last] != 1 && place.strides[last - 1] != 1 &&
        sizes[last] != 1 && sizes[last - 1] != 1) {
      place = builder.dense(value);
    }
    return std::pair{
        widened(builder.describe(value, place), out_sizes), place.ref};
  };
  const auto [a, a_ref] = see(tensor(node, 0));
  const auto [b, b_ref] = see(tensor(node, 1));
  const auto c = builder.row_major(output);
  const double flops = 2.0 * static_cast<double>(count(out_sizes)) *
      static_cast<double>(builder.sizes(tensor(node, 0)).back());
  for (const auto addition : {Addition::read, Addition::none}) {
    const auto attached = attach(builder, node, addition, [&](int64_t operand) {
      return see_broadcast(builder, operand, out_sizes);
    });
    try {
      const ::zendnn::matmul::primitive_desc desc(
          adeep::engine::cpu_engine(), a, b, c, attached.attributes);
      auto arguments = attached.arguments;
      const auto workspace = desc.scratchpad_desc();
      arguments.insert(
          arguments.end(),
          {{ZENDNN_ARG_SRC, a, a_ref},
           {ZENDNN_ARG_WEIGHTS, b, b_ref},
           {ZENDNN_ARG_DST, c, builder.make_dense(output).ref},
           {ZENDNN_ARG_SCRATCHPAD,
            workspace,
            builder.scratch(static_cast<int64_t>(workspace.get_size()))}});
      builder.add_primitive(
          node,
          ::zendnn::matmul(desc),
          std::string("matmul ") + desc.impl_info_str(),
          arguments,
          flops);
      apply_rest(builder, node, attached.taken);
      return;
    } catch (const ::zendnn::error&) {
      continue;
    }
  }
  refuse("a matrix product that ZenDNN does not do");
}

} // namespace at::native::zendnn::plan
