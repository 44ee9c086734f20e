// Linear layers with constant weights, and products of computed matrices.
#include <torch/csrc/zendnn/plan/Operators.h>
#include <torch/csrc/zendnn/plan/PostOps.h>
#include <torch/csrc/zendnn/plan/Primitive.h>
#include <torch/csrc/zendnn/plan/Trial.h>

#include <ATen/Parallel.h>
#include <ATen/native/zendnn/Cpu.h>
#include <adeep/abstract_types.hpp>

#include <array>
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

// ZenDNN's implementations of one product, best first, whatever layout of the
// weights each of them wants.
template <typename Run>
std::vector<Primitive> implementations(
    typename Run::primitive_desc desc,
    const std::string& kind,
    const memory::desc& plain) {
  std::vector<Primitive> found;
  do {
    found.push_back(Primitive::of<Run>(desc, kind, plain));
  } while (desc.next_impl());
  return found;
}

std::vector<Primitive> matmuls(
    const Product& p,
    const memory::desc& weights,
    const ::zendnn::primitive_attr& attributes,
    const std::string& kind) {
  return implementations<::zendnn::matmul>(
      ::zendnn::matmul::primitive_desc(
          adeep::engine::cpu_engine(),
          p.source,
          weights,
          p.bias,
          p.result,
          attributes),
      kind,
      p.weights);
}

// The same product as an inner product, whose weights are (out, in).
std::vector<Primitive> inner_products(
    const Product& p,
    const ::zendnn::primitive_attr& attributes) {
  using Run = ::zendnn::inner_product_forward;
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
  return implementations<Run>(
      Run::primitive_desc(
          adeep::engine::cpu_engine(),
          prop_kind::forward_inference,
          p.source,
          weights,
          bias,
          p.result,
          attributes),
      kInnerProduct,
      p.weights.permute_axes({1, 0}));
}

// Layouts of packed weights: panels of so many outputs, which a tile of the
// AVX-512 kernels spans. Left to choose, ZenDNN looks at the sizes only. Its
// AVX2 kernels say that they take these, and compute nonsense.
struct Panels {
  const char* kind;
  memory::format_tag float32, bfloat16;
};

constexpr std::array<Panels, 3> kPanels{{
    {"matmul panels of 32 ",
     memory::format_tag::BA16a32b,
     memory::format_tag::BA16a32b2a},
    {"matmul panels of 48 ",
     memory::format_tag::BA16a48b,
     memory::format_tag::BA16a48b2a},
    {"matmul panels of 64 ",
     memory::format_tag::BA16a64b,
     memory::format_tag::BA16a64b2a},
}};

// The ways to multiply by constant weights: as they lie, row by row, or packed,
// by every implementation that takes them so; those that end in ZenDNN's GEMM
// are BLIS's in float32. Slow ones only if asked for.
std::vector<Primitive>
ways(const Product& p, const ::zendnn::primitive_attr& attributes, bool slow) {
  std::vector<Primitive> found;
  const bool wide = uses(Isa::avx512);
  const auto worth_timing = [&](const Primitive& made) {
    return (slow || !is_reference(made.name)) && is_affordable(made) &&
           !(wide && made.implementation.find("avx2") != std::string::npos) &&
           std::none_of(found.begin(), found.end(), [&](const auto& other) {
             return other.weights == made.weights &&
                    other.implementation == made.implementation;
           });
  };
  const auto attempt = [&](const auto& make) {
    try {
      for (auto& made : make()) {
        if (made.source == p.source && made.result == p.result &&
            worth_timing(made)) {
          found.push_back(std::move(made));
        }
      }
    } catch (const ::zendnn::error&) { // not this way
    }
  };
  const auto type = p.weights.get_data_type();
  attempt([&] {
    return matmuls(p, any_layout(p.weights), attributes, "matmul packed ");
  });
  for (const auto& panels : kPanels) {
    if (!wide) {
      break;
    }
    const memory::desc packed(
        p.weights.get_dims(),
        type,
        type == memory::data_type::f32 ? panels.float32 : panels.bfloat16);
    attempt([&] {
      auto made = matmuls(p, packed, attributes, panels.kind);
      made.resize(1, made.front()); // ours, unless it does not take the layer
      return made;
    });
  }
  attempt([&] { return matmuls(p, p.weights, attributes, "matmul plain "); });
  attempt([&] {
    return matmuls(p, transposed(p.weights), attributes, "matmul row major ");
  });
  attempt([&] { return inner_products(p, attributes); });
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
std::optional<Seen>
see_rows(Builder& builder, int64_t operand, const Dims& result) {
  const auto& sizes = builder.sizes(operand);
  const auto dtype = builder.dtype(operand);
  const auto dense = [&builder, operand] { return builder.dense(operand).ref; };
  if (sizes == result) {
    const auto strides = builder.addressable_layout(operand).get_strides();
    if (const auto stride = row_stride(sizes, strides)) {
      return Seen{as_rows(sizes, dtype, *stride), [&builder, operand] {
                    return builder.addressable(operand).ref;
                  }};
    }
    return Seen{as_rows(sizes, dtype, sizes.back()), dense};
  }
  const auto elements = count(sizes);
  if (elements == 1 || (!sizes.empty() && elements == sizes.back())) {
    return Seen{
        memory::desc(Dims{1, elements}, type_of(dtype), Dims{elements, 1}),
        dense};
  }
  return std::nullopt;
}

// An operand as a product of `matrices`, or of the rows of all of them, sees
// it: one for all, or as many as there are.
std::optional<Seen> see_matrices(
    Builder& builder,
    int64_t operand,
    const Dims& result,
    const Dims& product) {
  const auto& sizes = builder.sizes(operand);
  const auto layout = builder.row_major(operand);
  const auto type = type_of(builder.dtype(operand));
  // A copy would cost as much as a step for it.
  if (builder.addressable_layout(operand) != layout) {
    return std::nullopt;
  }
  Dims wide(result.size() - sizes.size(), 1);
  wide.insert(wide.end(), sizes.begin(), sizes.end());
  const Dims batch(wide.begin(), wide.end() - 2);
  const bool one = count(batch) == 1;
  if (!one && !std::equal(batch.begin(), batch.end(), result.begin())) {
    return std::nullopt;
  }
  Dims seen;
  if (product.size() == 3) {
    seen.push_back(one ? 1 : product[0]);
  }
  seen.insert(seen.end(), wide.end() - 2, wide.end());
  if (product.size() == 2 && !one) {
    seen[0] *= count(batch); // the rows of all matrices
  }
  for (size_t i = 0; i < seen.size(); ++i) {
    if (seen[i] != 1 && seen[i] != product[i]) {
      return std::nullopt;
    }
  }
  return Seen{{seen, type, row_major_strides(seen)}, [&builder, operand] {
                return builder.addressable(operand).ref;
              }};
}

struct Matrices {
  memory::desc desc;
  Ref ref;
};

// All rows of a tensor as one matrix, which may be transposed where it lies.
Matrices as_all_rows(Builder& builder, int64_t value, bool transposed) {
  const auto& sizes = builder.sizes(value);
  const auto dtype = builder.dtype(value);
  const auto place = builder.strided(value);
  if (const auto row = row_stride(sizes, place.strides)) {
    return {as_rows(sizes, dtype, *row), place.ref};
  }
  if (transposed && sizes.size() == 2 && sizes[0] > 1 &&
      place.strides[0] == 1 && place.strides[1] >= sizes[0]) {
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
    even = even && (apart == 0 || steps[i] == next);
    apart = apart == 0 ? steps[i] : apart;
    next = steps[i] * batch[i];
  }
  auto row = steps.end()[-2], column = steps.back();
  // Strides of single rows and columns say nothing. ZenDNN must not see a
  // single row with gaps as a transposed column: it ignores the gaps.
  column = columns == 1 ? 1 : column;
  row = rows == 1 ? columns : row;
  const bool plain =
      (column == 1 && row >= columns) || (row == 1 && column >= rows);
  auto ref = place.ref;
  if (!even || !plain || overlaps(whole, steps)) {
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

// A linear layer but for its result, which depends on post-ops.
struct Layer {
  Product product;
  Ref source, bias;
};

Layer layer_of(Builder& builder, const Node& node) {
  const auto input = tensor(node, 0);
  const auto& sizes = builder.sizes(input);
  const auto weight = tensor(node, 1);
  const auto outputs = builder.sizes(weight)[0];
  const auto& steps = builder.strides(weight);
  const auto rows = as_all_rows(builder, input, /*transposed=*/false);
  Layer layer;
  layer.source = rows.ref;
  layer.product.source = rows.desc;
  layer.product.weights = memory::desc(
      Dims{sizes.back(), outputs},
      type_of(builder.dtype(input)),
      Dims{steps[1], steps[0]});
  if (has(node, 2)) {
    const auto bias = tensor(node, 2);
    layer.product.bias = as_rows(
        {1, outputs},
        builder.dtype(bias),
        /*row_stride=*/outputs);
    layer.bias = builder.dense(bias).ref;
  }
  return layer;
}

// How far apart the result's rows are; nothing when they are unevenly so in the
// place where they must go.
std::optional<int64_t>
row_of_result(Builder& builder, int64_t output, const Attached& attached) {
  const auto& sizes = builder.sizes(output);
  if (const auto& place = attached.accumulator) {
    return place->blocked ? std::nullopt
                          : writable_row_stride(sizes, place->strides);
  }
  const auto slice = builder.target(output);
  return slice && !slice->blocked
             ? writable_row_stride(sizes, slice->strides).value_or(sizes.back())
             : sizes.back();
}

// An inner product's bias has one dimension.
memory::desc bias_of(const Primitive& made, const memory::desc& bias) {
  return made.name.starts_with(kInnerProduct) && !bias.is_zero()
             ? bias.reshape({bias.get_dims()[1]})
             : bias;
}

// ZenDNN's plain loops.
Candidate reference(
    const Product& p,
    const Attached& attached,
    const std::shared_ptr<Trial>& trial) {
  for (const auto& made :
       matmuls(p, p.weights, attached.attributes, "reference ")) {
    if (is_reference(made.implementation)) {
      return as_candidate(made, p.bias, attached, trial);
    }
  }
  refuse("a product that has no reference");
}

size_t fastest(
    Builder& builder,
    const Node& node,
    const Layer& layer,
    const Attached& attached,
    const std::vector<Primitive>& found) {
  if (found.size() < 2 && !verifies()) {
    return 0;
  }
  const auto& p = layer.product;
  const auto key = [&](bool about) {
    std::ostringstream text;
    text << (about ? "about " : "") << "linear " << text_of(p.source, about)
         << ' ' << text_of(p.weights) << ' ' << text_of(p.bias) << ' '
         << text_of(p.result, about) << ' ' << attached.accumulator.has_value()
         << post_op_key(node, attached, about) << " threads "
         << at::get_num_threads();
    return text.str();
  };
  const auto trial = std::make_shared<Trial>(
      p.weights,
      builder.plain_weights(tensor(node, 1)),
      p.weights.get_dims()[0],
      magnification(node));
  std::vector<Candidate> candidates;
  for (const auto& made : found) {
    candidates.push_back(
        as_candidate(made, bias_of(made, p.bias), attached, trial));
    candidates.back().ready =
        builder.is_packed(tensor(node, 1), made.plain, made.weights);
  }
  return builder.choose(
      node,
      key(false),
      candidates,
      [&] { return judgement_of(reference(p, attached, trial), *trial); },
      key(true));
}

void add_linear(
    Builder& builder,
    const Node& node,
    const Layer& layer,
    const Attached& attached,
    const Primitive& made) {
  const auto output = node.output();
  const auto bias = bias_of(made, layer.product.bias);
  auto arguments = attached.read();
  if (attached.accumulator) {
    builder.set_place(output, *attached.accumulator);
  } else {
    builder.make_rows(output);
  }
  arguments.insert(
      arguments.end(),
      {{ZENDNN_ARG_SRC, made.source, layer.source},
       {ZENDNN_ARG_WEIGHTS,
        made.weights,
        builder.packed(tensor(node, 1), made.plain, made.weights)},
       {ZENDNN_ARG_DST, made.result, builder.place(output).ref}});
  if (!bias.is_zero()) {
    arguments.push_back({ZENDNN_ARG_BIAS, bias, layer.bias});
  }
  const auto rows = static_cast<double>(count(builder.sizes(output)));
  const auto inputs = static_cast<double>(layer.product.source.get_dims()[1]);
  builder.add_primitive(
      node, made.make(), made.name, std::move(arguments), 2 * rows * inputs);
  apply_rest(builder, node, attached.taken);
}

} // namespace

void infer_linear(Values& values, const Node& node) {
  const auto input = tensor(node, 0), weight = tensor(node, 1);
  auto out = values.sizes(input);
  const auto& w = values.sizes(weight);
  type_of(values.dtype(input));
  if (!values.is_weight(weight) || w.size() != 2) {
    refuse("a linear layer whose weights are computed");
  }
  if (out.empty() || out.back() != w[1] ||
      values.dtype(input) != values.dtype(weight)) {
    refuse("a linear layer whose input and weights disagree");
  }
  out.back() = w[0];
  if (has(node, 2) && values.sizes(tensor(node, 2)) != Dims{w[0]}) {
    refuse("a linear layer whose bias is not one number for each output");
  }
  const auto dtype = node.get(attr::linear::dtype);
  values.set_type(
      node.output(),
      out,
      dtype.empty() ? values.dtype(input) : dtype_named(dtype));
}

void build_linear(Builder& builder, const Node& node) {
  const auto output = node.output();
  const auto& out_sizes = builder.sizes(output);
  auto layer = layer_of(builder, node);
  std::vector<Addition> additions{Addition::read, Addition::none};
  if (!builder.is_result(output) && can_accumulate(builder, node)) {
    additions.insert(additions.begin(), Addition::accumulate);
  }
  for (const bool slow : {false, true}) {
    for (const auto addition : additions) {
      const auto attached =
          attach(builder, node, addition, [&](int64_t operand) {
            return see_rows(builder, operand, out_sizes);
          });
      const auto row = row_of_result(builder, output, attached);
      if (!row) {
        continue;
      }
      layer.product.result = as_rows(out_sizes, builder.dtype(output), *row);
      const auto found = ways(layer.product, attached.attributes, slow);
      if (!found.empty()) {
        const auto chosen = fastest(builder, node, layer, attached, found);
        return add_linear(builder, node, layer, attached, found[chosen]);
      }
    }
  }
  refuse("a linear layer that ZenDNN does not do");
}

void infer_matmul(Values& values, const Node& node) {
  const auto& a = values.sizes(tensor(node, 0));
  const auto& b = values.sizes(tensor(node, 1));
  const auto dtype = values.dtype(tensor(node, 0));
  type_of(dtype);
  if (a.size() < 2 || b.size() < 2 || a.size() > 6 || b.size() > 6) {
    refuse("a matrix product with vectors");
  }
  if (a.back() != b[b.size() - 2] || dtype != values.dtype(tensor(node, 1))) {
    refuse("a matrix product whose operands disagree");
  }
  auto out = broadcast({a.begin(), a.end() - 2}, {b.begin(), b.end() - 2});
  out.insert(out.end(), {a.end()[-2], b.back()});
  values.set_type(node.output(), out, dtype);
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
  const auto a = shared ? as_all_rows(builder, left, /*transposed=*/true)
                        : as_matrices(builder, left, batch);
  const auto b = as_matrices(builder, right, batch);
  Dims c_sizes = a.desc.get_dims();
  c_sizes.back() = out_sizes.back();
  const memory::desc c(
      c_sizes, type_of(builder.dtype(output)), row_major_strides(c_sizes));
  const double flops = 2.0 * static_cast<double>(count(out_sizes)) *
                       static_cast<double>(builder.sizes(left).back());
  std::vector<Addition> additions{
      Addition::read, Addition::functions, Addition::none};
  if (!builder.is_result(output) && can_accumulate(builder, node)) {
    additions.insert(additions.begin(), Addition::accumulate);
  }
  for (const bool slow : {false, true}) {
    for (const auto addition : additions) {
      const auto attached =
          attach(builder, node, addition, [&](int64_t operand) {
            return see_matrices(builder, operand, out_sizes, c_sizes);
          });
      const auto& accumulator = attached.accumulator;
      if (accumulator && (accumulator->blocked ||
                          !is_row_major(out_sizes, accumulator->strides))) {
        continue;
      }
      std::optional<::zendnn::matmul::primitive_desc> desc;
      try {
        desc.emplace(
            adeep::engine::cpu_engine(),
            a.desc,
            b.desc,
            c,
            attached.attributes);
      } catch (const ::zendnn::error&) {
        continue; // not with these post-ops
      }
      if (is_reference(desc->impl_info_str()) && !slow) {
        continue;
      }
      auto arguments = attached.read();
      if (accumulator) {
        builder.set_place(output, *accumulator);
      } else {
        builder.make_dense(output);
      }
      arguments.insert(
          arguments.end(),
          {{ZENDNN_ARG_SRC, a.desc, a.ref},
           {ZENDNN_ARG_WEIGHTS, b.desc, b.ref},
           {ZENDNN_ARG_DST, c, builder.place(output).ref}});
      builder.add_primitive(
          node,
          ::zendnn::matmul(*desc),
          std::string("matmul ") + desc->impl_info_str(),
          std::move(arguments),
          flops);
      return apply_rest(builder, node, attached.taken);
    }
  }
  refuse("a matrix product that ZenDNN does not do");
}

} // namespace at::native::zendnn::plan
