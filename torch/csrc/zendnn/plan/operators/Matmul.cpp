// Linear layers with constant weights, and products of computed matrices.
#include <torch/csrc/zendnn/plan/build/Product.h>
#include <torch/csrc/zendnn/plan/describe/Operators.h>
#include <torch/csrc/zendnn/plan/operators/Amd.h>
#include <torch/csrc/zendnn/plan/operators/Dot.h>

#include <ATen/Parallel.h>
#include <ATen/native/zendnn/Cpu.h>
#include <ATen/native/zendnn/cpu/Heuristics.h>

#include <array>
#include <functional>
#include <numeric>

namespace at::native::zendnn::plan {
namespace {

using ::zendnn::primitive_attr;

// Layouts of packed weights: panels of as many outputs as a tile of the AVX-512
// kernels spans. Left to choose, ZenDNN looks at the sizes only. Its AVX2
// kernels accept these layouts and compute nonsense.
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

constexpr const char* kInnerProduct = "inner product ";

// A tensor as a matrix of its rows.
memory::desc
as_rows(const Dims& sizes, c10::ScalarType dtype, int64_t row_stride) {
  const auto columns = sizes.back();
  return {
      Dims{count(sizes) / columns, columns},
      type_of(dtype),
      Dims{row_stride, 1}};
}

memory::desc turned(const memory::desc& matrix) {
  return matrix.permute_axes({1, 0});
}

memory::desc row_major(const memory::desc& matrix) {
  const auto dims = matrix.get_dims();
  return {dims, matrix.get_data_type(), Dims{dims[1], 1}};
}

// A matrix with so many rows and columns at most; rows without gaps stay so.
memory::desc
cut(const memory::desc& matrix, int64_t most_rows, int64_t most_columns) {
  const auto dims = matrix.get_dims();
  const auto rows = std::min(dims[0], most_rows);
  const auto columns = std::min(dims[1], most_columns);
  const auto step = matrix.get_strides()[0];
  return {
      {rows, columns},
      matrix.get_data_type(),
      {step == dims[1] ? columns : step, 1}};
}

struct Matrices {
  memory::desc desc;
  Ref ref;
};

// All rows of a tensor as one matrix.
Matrices as_all_rows(Builder& builder, int64_t value) {
  const auto& sizes = builder.values().sizes(value);
  const auto dtype = builder.values().dtype(value);
  const auto place = builder.strided(value);
  if (const auto row = row_stride(sizes, place.strides)) {
    return {as_rows(sizes, dtype, *row), place.ref};
  }
  return {as_rows(sizes, dtype, sizes.back()), builder.dense(value).ref};
}

// Consecutive dimensions of a batch along which the same operands are repeated,
// one of the two at most.
struct Run {
  size_t first, last;
  bool left, right;
};

// The runs of a batch in which the operands have these strides. Where both are
// repeated, one is copied.
std::vector<Run> runs_of(
    const Dims& batch,
    const Dims& left,
    const Dims& right,
    bool copies_left) {
  std::vector<Run> runs;
  for (size_t i = 0; i < batch.size(); ++i) {
    if (batch[i] == 1) {
      continue;
    }
    bool is_left = left[i] == 0, is_right = right[i] == 0;
    if (is_left && is_right) {
      (copies_left ? is_left : is_right) = false;
    }
    if (runs.empty() || runs.back().left != is_left ||
        runs.back().right != is_right) {
      runs.push_back({i, i, is_left, is_right});
    }
    runs.back().last = i + 1;
  }
  return runs;
}

// The strides of an operand over the batch and its matrix.
Dims strides_over(Builder& builder, int64_t value, const Dims& batch) {
  const auto& sizes = builder.values().sizes(value);
  auto whole = batch;
  whole.insert(whole.end(), sizes.end() - 2, sizes.end());
  return broadcast_strides(sizes, builder.strided(value).strides, whole);
}

// One matrix for each run's elements, or one for all where the operand is
// repeated; with `joined`, the last run's matrices are one, with the rows of
// all. What does not lie so is copied, each element once.
Matrices as_matrices(
    Builder& builder,
    int64_t value,
    const Dims& batch,
    const std::vector<Run>& runs,
    bool Run::* repeated,
    bool joined) {
  const auto& sizes = builder.values().sizes(value);
  const auto dtype = builder.values().dtype(value);
  auto strides = strides_over(builder, value, batch);
  Dims whole = batch;
  for (const auto& run : runs) {
    if (run.*repeated) {
      std::fill(whole.begin() + run.first, whole.begin() + run.last, 1);
    }
  }
  whole.insert(whole.end(), sizes.end() - 2, sizes.end());
  const auto matrices = runs.size() - joined;
  const auto first_row =
      joined && !(runs.back().*repeated) ? runs.back().first : batch.size();
  const auto last = whole.size() - 1;
  const auto product = [&](size_t from, size_t to) {
    return count(Dims(whole.begin() + from, whole.begin() + to));
  };
  const auto rows = product(first_row, last), columns = whole.back();
  Dims described, steps;
  for (size_t i = 0; i < matrices; ++i) {
    described.push_back(product(runs[i].first, runs[i].last));
  }
  described.insert(described.end(), {rows, columns});
  // Whether a description exists, which goes to `steps`.
  const auto lies = [&] {
    // Strides of single rows and columns say nothing. ZenDNN must not see a
    // single row with gaps as a transposed column: it ignores the gaps.
    const auto row = even_stride(whole, strides, first_row, last, columns);
    const auto column = columns == 1 ? 1 : strides.back();
    if (!row || overlaps(whole, strides) ||
        !((column == 1 && *row >= columns) || (*row == 1 && column >= rows))) {
      return false;
    }
    steps = {*row, column};
    auto reach = std::max(*row * rows, column * columns);
    for (auto i = matrices; i-- > 0;) {
      const auto apart =
          even_stride(whole, strides, runs[i].first, runs[i].last, reach);
      if (!apart) {
        return false;
      }
      steps.insert(steps.begin(), *apart);
      reach = std::max(reach, *apart * described[i]);
    }
    return true;
  };
  auto ref = builder.strided(value).ref;
  if (!lies()) {
    if (count(whole) == count(sizes)) {
      ref = builder.dense(value).ref;
    } else {
      const auto bytes = item_size(dtype);
      const Place to{
          .ref = builder.scratch(count(whole) * bytes),
          .strides = row_major_strides(whole)};
      builder.copy_as(whole, bytes, {.ref = ref, .strides = strides}, to);
      ref = to.ref;
    }
    strides = row_major_strides(whole);
    TORCH_INTERNAL_ASSERT(lies());
  }
  return {memory::desc(described, type_of(dtype), steps), ref};
}

class MatrixProduct : public Product {
 protected:
  using Product::Product;

  std::optional<memory::desc> describe_result(
      const std::optional<Place>& place) const override {
    const auto& sizes = builder_.values().sizes(node_.output());
    const auto type = type_of(builder_.values().dtype(node_.output()));
    if (!place) {
      return memory::desc(dims_, type, row_major_strides(dims_));
    }
    const auto row = place->blocked
                         ? std::nullopt
                         : writable_row_stride(sizes, place->strides);
    if (!row || (dims_.size() > 2 && *row != sizes.back())) {
      return std::nullopt;
    }
    auto strides = row_major_strides(dims_);
    strides.end()[-2] = *row;
    return memory::desc(dims_, type, strides);
  }

  // One matrix for all, or as many as there are; one number or row stands for
  // all of a matrix.
  std::optional<Seen> see(int64_t operand) override {
    const auto& sizes = builder_.values().sizes(operand);
    const auto& result = builder_.values().sizes(node_.output());
    const auto dtype = builder_.values().dtype(operand);
    const auto strides = builder_.addressable_layout(operand).get_strides();
    if (const auto row = row_stride(sizes, strides);
        row && dims_.size() == 2 && sizes == result) {
      return Seen{as_rows(sizes, dtype, *row), [this, operand] {
                    return builder_.addressable(operand).ref;
                  }};
    }
    // A copy of more than a row would cost as much as a step for it.
    if (!is_row_major(sizes, strides) && count(sizes) > dims_.back()) {
      return std::nullopt;
    }
    const auto rank = std::max<size_t>(result.size(), 2);
    const auto widened = [rank](const Dims& narrow) {
      Dims wide(rank - narrow.size(), 1);
      wide.insert(wide.end(), narrow.begin(), narrow.end());
      return wide;
    };
    const auto wide = widened(sizes), whole = widened(result);
    const auto matrices = std::accumulate(
        dims_.begin(), dims_.end() - 2, int64_t{1}, std::multiplies<>());
    auto seen = dims_;
    seen.back() = wide.back();
    if (!std::equal(wide.begin(), wide.end() - 1, whole.begin())) {
      // Not each row has its own: all matrices share one, or have one each.
      const Dims batch(wide.begin(), wide.end() - 2);
      seen.end()[-2] = wide.end()[-2];
      if (count(batch) == 1) {
        std::fill(seen.begin(), seen.end() - 2, 1);
      } else if (
          count(batch) != matrices ||
          !std::equal(batch.begin(), batch.end(), whole.begin())) {
        return std::nullopt;
      }
    }
    for (size_t i = 0; i < seen.size(); ++i) {
      if (seen[i] != 1 && seen[i] != dims_[i]) {
        return std::nullopt;
      }
    }
    return Seen{
        {seen, type_of(dtype), row_major_strides(seen)},
        [this, operand] { return builder_.dense(operand).ref; }};
  }

  // By matrices of weights that are described so.
  void visit_matmuls(
      const std::string& kind,
      const memory::desc& weights,
      const primitive_attr& attributes,
      const Visit& visit) const {
    const auto bias =
        bias_.is_zero() ? bias_ : bias_.reshape({1, weights.get_dims().back()});
    visit_primitives<::zendnn::matmul>(
        kind, weights_, visit, source_, weights, bias, result_, attributes);
  }

  Dims dims_; // of the result: a matrix, or as many as there are
};

class Linear : public MatrixProduct {
 public:
  Linear(Builder& builder, const Node& node)
      : MatrixProduct(builder, node, "linear layer") {
    const auto input = tensor(node, 0), weight = tensor(node, 1);
    const auto rows = as_all_rows(builder, input);
    source_ = rows.desc;
    source_ref_ = rows.ref;
    depth_ = source_.get_dims()[1];
    dims_ = {source_.get_dims()[0], builder.values().sizes(weight)[0]};
    const auto& steps = builder.values().strides(weight);
    weights_ = memory::desc(
        {depth_, dims_[1]},
        type_of(builder.values().dtype(input)),
        Dims{steps[1], steps[0]});
    set_bias();
  }

 private:
  // Rows that keep all threads busy, and columns for whole panels of each,
  // whose weights come from memory as the whole's do: many rows read them
  // again.
  std::unique_ptr<Product> part() const override {
    constexpr int64_t kFewRows = 128, kRows = 256;
    constexpr int64_t kPanels = 3 * 64; // of any width
    const auto threads = at::get_num_threads();
    const auto sizes = dims_of_product();
    const auto bytes = int64_t{sizes[0] <= kFewRows ? 2 : 8} << 20;
    const auto unit = kPanels * threads;
    const auto column =
        depth_ * item_size(builder_.values().dtype(tensor(node_, 1)));
    const auto shorter = [](int64_t part, int64_t whole) { // where that pays
      return part <= whole * 3 / 4 ? part : whole;
    };
    const auto rows = shorter(kRows * threads, sizes[0]);
    const auto columns = shorter((bytes / column / unit + 1) * unit, sizes[1]);
    if (weights_.get_strides() != Dims{1, depth_} ||
        Dims{rows, columns} == sizes) {
      return nullptr;
    }
    auto part = std::make_unique<Linear>(*this);
    part->source_ = cut(source_, rows, depth_);
    part->weights_ = {{depth_, columns}, weights_.get_data_type(), {1, depth_}};
    part->result_ = cut(result_, rows, columns);
    if (!bias_.is_zero()) {
      part->bias_ = {{columns}, bias_.get_data_type(), memory::format_tag::x};
    }
    return part;
  }

  // Of the whole, or of a part.
  Dims dims_of_product() const {
    return {source_.get_dims()[0], weights_.get_dims()[1]};
  }

  // A part sees its own share.
  std::optional<Seen> see(int64_t operand) override {
    auto seen = MatrixProduct::see(operand);
    if (const auto sizes = dims_of_product(); seen && sizes != dims_) {
      seen->desc = cut(seen->desc, sizes[0], sizes[1]);
    }
    return seen;
  }

  // By weights as they lie or packed, by every implementation that takes them
  // so. ZenDNN's GEMM, which is BLIS's in float32, packs them for itself.
  void visit(const primitive_attr& attributes, const Visit& visit)
      const override {
    const auto type = weights_.get_data_type();
    const bool wide = uses(Isa::avx512);
    const auto visit_some = [&](const Implementation& implementation) {
      return (wide && implementation.name.find("avx2") != std::string::npos) ||
             visit(implementation);
    };
    const auto attempt =
        [&](const char* kind, const memory::desc& weights, const Visit& visit) {
          visit_matmuls(kind, weights, attributes, visit);
        };
    const auto visit_packed = [&](Implementation implementation) {
      const auto& name = implementation.implementation;
      implementation.is_slow = implementation.is_slow ||
                               name.starts_with("gemm:") ||
                               name.starts_with("x64:gemm:");
      return visit_some(implementation);
    };
    attempt("matmul packed ", any_layout(weights_), visit_packed);
    for (const auto& panels : kPanels) {
      if (wide) {
        const auto tag =
            type == memory::data_type::f32 ? panels.float32 : panels.bfloat16;
        attempt(
            panels.kind,
            {weights_.get_dims(), type, tag},
            [&](const Implementation& implementation) {
              visit_some(implementation);
              return false; // ours, unless it does not take the layer
            });
      }
    }
    attempt("matmul plain ", weights_, visit_some);
    if (!wide) { // panels are never slower
      attempt("matmul row major ", row_major(weights_), visit_packed);
    }
    visit_inner_products(
        any_layout(turned(weights_)), attributes, visit_packed);
  }

  // By weights that are described so: (out, in).
  void visit_inner_products(
      const memory::desc& weights,
      const primitive_attr& attributes,
      const Visit& visit) const {
    visit_primitives<::zendnn::inner_product_forward>(
        kInnerProduct,
        turned(weights_),
        visit,
        ::zendnn::prop_kind::forward_inference,
        source_,
        weights,
        bias_,
        result_,
        attributes);
  }

  std::vector<Implementation> find(const Attached& attached, bool slow)
      const override {
    auto found = Product::find(attached, slow);
    add_amd(builder_, node_, weights_, attached, found);
    add_dot(node_, weights_, attached, found);
    return found;
  }

  std::vector<Implementation> find_again(
      const Attached& attached,
      const std::vector<Implementation>& of_whole) const override {
    std::vector<Implementation> found;
    const auto visit_same = [&](const Implementation& whole) {
      return [&](Implementation implementation) {
        const bool is_same =
            implementation.implementation == whole.implementation;
        if (is_same) {
          found.push_back(std::move(implementation));
        }
        return !is_same;
      };
    };
    for (const auto& whole : of_whole) {
      if (whole.run) {
        add_amd(builder_, node_, weights_, attached, found);
        continue;
      }
      const bool inner = whole.name.starts_with(kInnerProduct);
      const auto weights = share(whole.weights, /*outputs=*/inner ? 0 : 1);
      if (weights.is_zero()) {
        return {};
      }
      inner
          ? visit_inner_products(
                weights, attached.attributes, visit_same(whole))
          : visit_matmuls("", weights, attached.attributes, visit_same(whole));
    }
    return found.size() == of_whole.size() ? found
                                           : std::vector<Implementation>();
  }

  // The part's share of the whole's weights in one of their layouts, in which
  // `outputs` is an axis; zero where a share has no such layout.
  memory::desc share(const memory::desc& weights, size_t outputs) const {
    auto dims = weights.get_dims();
    if (dims[outputs] == weights_.get_dims()[1]) {
      return weights; // all of them
    }
    dims[outputs] = weights_.get_dims()[1];
    if (weights.get_inner_nblks() == 0 && weights.get_strides()[outputs] == 1) {
      Dims strides(2, 1);
      strides[1 - outputs] = dims[outputs];
      return {dims, weights.get_data_type(), strides};
    }
    return weights.submemory_desc(dims, {0, 0}, /*allow_empty=*/true);
  }
};

class Matmul : public MatrixProduct {
 public:
  Matmul(Builder& builder, const Node& node)
      : MatrixProduct(builder, node, "matrix product") {
    most_ = 1;
    const auto left = tensor(node, 0), right = tensor(node, 1);
    const auto& out = builder.values().sizes(node.output());
    const Dims batch(out.begin(), out.end() - 2);
    const auto one = [&](int64_t value) { // matrix
      const auto& sizes = builder.values().sizes(value);
      return sizes.back() * sizes.end()[-2];
    };
    const auto runs = runs_of(
        batch,
        strides_over(builder, left, batch),
        strides_over(builder, right, batch),
        /*copies_left=*/one(left) <= one(right));
    // One right matrix for the last run: one product of all rows.
    const bool joined = !runs.empty() && runs.back().right;
    const auto a = as_matrices(builder, left, batch, runs, &Run::left, joined);
    const auto b =
        as_matrices(builder, right, batch, runs, &Run::right, joined);
    source_ = a.desc;
    source_ref_ = a.ref;
    weights_ = b.desc;
    weights_ref_ = b.ref;
    dims_ = a.desc.get_dims();
    depth_ = dims_.back();
    const auto others = b.desc.get_dims();
    for (size_t i = 0; i + 2 < dims_.size(); ++i) { // one may be repeated
      dims_[i] = std::max(dims_[i], others[i]);
    }
    dims_.back() = out.back();
  }

 private:
  void visit(const primitive_attr& attributes, const Visit& visit)
      const override {
    visit_matmuls("matmul ", weights_, attributes, visit);
  }
};

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
  const auto dtype =
      node.as<attr::linear>().dtype.value_or(values.dtype(input));
  type_of(dtype); // which refuses what no layer makes
  // Sums of float32 take a bias as exact as they are.
  if (has(node, 2) && values.dtype(tensor(node, 2)) != values.dtype(weight) &&
      values.dtype(tensor(node, 2)) != dtype) {
    refuse("a linear layer whose bias has another dtype");
  }
  values.set_type(node.output(), out, dtype);
}

void build_linear(Builder& builder, const Node& node) {
  Linear(builder, node).build();
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
  // Fewer cost less than a call of torch's.
  if (const auto batch = count(out);
      batch >= value_of(Threshold::many_tiny_products) &&
      cpu::are_tiny(batch, a.end()[-2], a.back(), b.back())) {
    refuse("products of many tiny matrices");
  }
  out.insert(out.end(), {a.end()[-2], b.back()});
  values.set_type(node.output(), out, dtype);
}

void build_matmul(Builder& builder, const Node& node) {
  Matmul(builder, node).build();
}

} // namespace at::native::zendnn::plan
