// mm, addmm, bmm and baddbmm on ZenDNN's matmul primitive with plain strides:
// no weight is packed, so no pack can be stale.
#include <ATen/native/zendnn/cpu/Overrides.h>

#include <ATen/CPUFunctions.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/native/zendnn/Context.h>
#include <ATen/native/zendnn/Operands.h>
#include <ATen/native/zendnn/Primitives.h>
#include <ATen/native/zendnn/Utils.h>
#include <ATen/native/zendnn/ZENDNNCommon.h>
#include <ATen/native/zendnn/cpu/Heuristics.h>
#include <ATen/native/zendnn/cpu/Row.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace at::native::zendnn::cpu {
namespace {

using ::zendnn::memory;

// How self enters self * beta + (mat1 @ mat2) * alpha.
enum class Addend : uint8_t { none, bias, accumulate };

// out = post(a @ b): a is (batch,) m x k, b is (batch,) k x n, out is
// (batch,) m x n; all of one dtype.
struct Problem {
  DimVector a_sizes, a_strides, b_sizes, b_strides, out_sizes, out_strides;
  memory::data_type dtype;
  Addend addend;
  float alpha, beta;
  int threads;
  bool deterministic;

  bool operator==(const Problem&) const = default;
};

struct ProblemHash {
  size_t operator()(const Problem& p) const {
    return hash_with(
        c10::get_hash(
            static_cast<int>(p.dtype),
            static_cast<int>(p.addend),
            p.alpha,
            p.beta,
            p.threads,
            p.deterministic),
        p.a_sizes,
        p.a_strides,
        p.b_sizes,
        p.b_strides,
        p.out_sizes,
        p.out_strides);
  }
};

memory::desc
describe(IntArrayRef sizes, IntArrayRef strides, memory::data_type dtype) {
  return {sizes.vec(), dtype, strides.vec()};
}

BoundPrimitive make_primitive(const Problem& p) {
  const auto a = describe(p.a_sizes, p.a_strides, p.dtype);
  const auto b = describe(p.b_sizes, p.b_strides, p.dtype);
  const auto out = describe(p.out_sizes, p.out_strides, p.dtype);
  ::zendnn::primitive_attr attr;
  attr.set_deterministic(p.deterministic);
  ::zendnn::post_ops post;
  if (p.alpha != 1) {
    post.append_eltwise(::zendnn::algorithm::eltwise_linear, p.alpha, 0);
  }
  if (p.addend == Addend::accumulate) {
    post.append_sum(p.beta);
  }
  attr.set_post_ops(post);
  memory::desc bias;
  if (p.addend == Addend::bias) {
    DimVector sizes(p.out_sizes.size(), 1);
    sizes.back() = p.out_sizes.back();
    DimVector strides(sizes.size(), sizes.back());
    strides.back() = 1;
    bias = describe(sizes, strides, p.dtype);
  }
  return {
      ::zendnn::matmul({adeep::engine::cpu_engine(), a, b, bias, out, attr}),
      {{ZENDNN_ARG_SRC, a},
       {ZENDNN_ARG_WEIGHTS, b},
       {ZENDNN_ARG_BIAS, bias},
       {ZENDNN_ARG_DST, out}}};
}

// Whether ZenDNN can describe it: one of the last two dimensions is contiguous,
// and no elements share memory (as in expanded and unfolded tensors).
bool is_plain_matrix(const Tensor& t) {
  const auto dim = t.dim();
  // Strides and sizes, sorted by insertion.
  std::array<std::pair<int64_t, int64_t>, 3> spans;
  int64_t count = 0;
  for (int64_t i = 0; i < dim; ++i) {
    if (t.size(i) > 1) {
      const std::pair span{t.stride(i), t.size(i)};
      auto at = count++;
      for (; at > 0 && span < spans[at - 1]; --at) {
        spans[at] = spans[at - 1];
      }
      spans[at] = span;
    }
  }
  int64_t span = 1;
  for (int64_t i = 0; i < count; ++i) {
    if (spans[i].first < span) {
      return false;
    }
    span = spans[i].first * spans[i].second;
  }
  return t.size(dim - 1) == 1 || t.stride(dim - 1) == 1 ||
         t.size(dim - 2) == 1 || t.stride(dim - 2) == 1;
}

Tensor as_plain_matrix(const Tensor& t) {
  return is_plain_matrix(t) ? t : t.contiguous();
}

bool is_repeated(const Tensor& t) {
  return t.dim() == 3 && t.size(0) > 1 && t.stride(0) == 0;
}

// Whether the rows of all matrices are evenly apart, as those of one matrix.
bool joins_rows(const Tensor& t) {
  return t.size(1) == 1 || t.stride(0) == t.stride(1) * t.size(1);
}

// Whether one matrix multiplies the rows of all others: a single product.
bool is_one_product(const Tensor& mat1, const Tensor& mat2) {
  return is_repeated(mat2) && !is_repeated(mat1) && joins_rows(mat1);
}

// Strides of dimensions of size 1 have no meaning, but ZenDNN reads them.
DimVector meaningful_strides(const Tensor& t) {
  DimVector strides(t.strides());
  const auto dim = t.dim();
  const auto rows = t.size(dim - 2), cols = t.size(dim - 1);
  if (cols == 1) {
    strides[dim - 1] = strides[dim - 2] == 1 ? rows : 1;
  }
  if (rows == 1) {
    strides[dim - 2] = strides[dim - 1] == 1 ? cols : 1;
  }
  if (dim == 3 && t.size(0) == 1) {
    strides[0] = std::max(strides[1] * rows, strides[2] * cols);
  }
  return strides;
}

// Why mat1 @ mat2, with or without an addend, is refused.
Reason why_not_multiply(
    const Tensor& mat1,
    const Tensor& mat2,
    int64_t dim,
    bool added) {
  if (mat1.dim() != dim || mat2.dim() != dim) {
    return why::kSizes;
  }
  if (mat1.scalar_type() != mat2.scalar_type()) {
    return why::kTypes;
  }
  if (!is_dense(mat1) || !is_dense(mat2)) {
    return why::kLayout;
  }
  if (!takes_dtype(mat1.scalar_type())) {
    return why::kType;
  }
  const auto m = mat1.size(dim - 2), k = mat1.size(dim - 1),
             n = mat2.size(dim - 1);
  const auto batch = dim == 3 ? mat1.size(0) : 1;
  const bool is_one = is_one_product(mat1, mat2);
  return k != mat2.size(dim - 2) || (dim == 3 && batch != mat2.size(0))
             ? why::kSizes
             : why_leave_product(
                   mat1.scalar_type(),
                   is_one ? 1 : batch,
                   is_one ? batch * m : m,
                   k,
                   n,
                   added);
}

DimVector product_sizes(const Tensor& mat1, const Tensor& mat2) {
  DimVector sizes(mat1.sizes());
  sizes.back() = mat2.sizes().back();
  return sizes;
}

// Whether a result can be written directly into out.
Reason why_not_into(const Tensor& out, const Tensor& mat1, const Tensor& mat2) {
  return !is_dense(out) || out.scalar_type() != mat1.scalar_type() ||
                 out.sizes() != IntArrayRef(product_sizes(mat1, mat2)) ||
                 !is_plain_matrix(out)
             ? why::kResult
         : !are_apart(out, mat1) || !are_apart(out, mat2) ? why::kOverlap
                                                          : nullptr;
}

// Whether rows are contiguous, as all fast kernels write them.
bool has_rows(const Tensor& out) {
  return out.stride(-1) == 1 || out.size(-1) == 1;
}

void multiply(
    const Tensor& mat1,
    const Tensor& mat2,
    const Tensor& bias,
    Addend addend,
    float beta,
    float alpha,
    const Tensor& out);

// A batch whose products are all the same: one that is copied, or, where each
// is added to a matrix of its own, one after the other.
void multiply_same(
    const Tensor& mat1,
    const Tensor& mat2,
    const Tensor& bias,
    Addend addend,
    float beta,
    float alpha,
    const Tensor& out) {
  const auto a = mat1.select(0, 0), b = mat2.select(0, 0);
  const auto first = out.select(0, 0);
  multiply(a, b, bias, addend, beta, alpha, first);
  if (addend != Addend::accumulate) {
    out.narrow(0, 1, out.size(0) - 1).copy_(first);
    return;
  }
  for (int64_t i = 1; i < out.size(0); ++i) {
    multiply(a, b, bias, addend, beta, alpha, out.select(0, i));
  }
}

void multiply(
    const Tensor& mat1,
    const Tensor& mat2,
    const Tensor& bias,
    Addend addend,
    float beta,
    float alpha,
    const Tensor& out) {
  if (!has_rows(out)) { // (a @ b).T is b.T @ a.T
    return multiply(mat2.mT(), mat1.mT(), bias, addend, beta, alpha, out.mT());
  }
  if (is_one_product(mat1, mat2) && joins_rows(out)) {
    return multiply(
        mat1.flatten(0, 1),
        mat2.select(0, 0),
        bias,
        addend,
        beta,
        alpha,
        out.flatten(0, 1));
  }
  if (is_repeated(mat1) && is_repeated(mat2)) {
    return multiply_same(mat1, mat2, bias, addend, beta, alpha, out);
  }
  // ZenDNN broadcasts a matrix over the batch, unless both are broadcast.
  const auto once = [](const Tensor& t) {
    return as_plain_matrix(is_repeated(t) ? t.narrow(0, 0, 1) : t);
  };
  const auto a = once(mat1), b = once(mat2);
  const Problem problem{
      DimVector(a.sizes()),
      meaningful_strides(a),
      DimVector(b.sizes()),
      meaningful_strides(b),
      DimVector(out.sizes()),
      meaningful_strides(out),
      get_zendnn_dtype(out),
      addend,
      alpha,
      beta,
      at::get_num_threads(),
      deterministic()};
  thread_local Recent<Problem, BoundPrimitive, ProblemHash> recent;
  const auto& primitive = recent.find(problem, make_primitive);
  primitive.run(
      {{ZENDNN_ARG_SRC, a.const_data_ptr()},
       {ZENDNN_ARG_WEIGHTS, b.const_data_ptr()},
       {ZENDNN_ARG_BIAS,
        addend == Addend::bias ? bias.const_data_ptr() : nullptr},
       {ZENDNN_ARG_DST, out.mutable_data_ptr()}});
}

// out = self * beta + (mat1 @ mat2) * alpha. out may be self.
void add_product(
    const Tensor& self,
    const Tensor& mat1,
    const Tensor& mat2,
    const Scalar& beta_scalar,
    const Scalar& alpha_scalar,
    const Tensor& out) {
  const auto beta = static_cast<float>(beta_scalar.toDouble());
  const auto alpha = static_cast<float>(alpha_scalar.toDouble());
  if (beta == 0) {
    return multiply(mat1, mat2, {}, Addend::none, 0, alpha, out);
  }
  const auto n = mat2.sizes().back();
  if (beta == 1 && alpha == 1 && self.numel() == n && self.dim() >= 1 &&
      self.sizes().back() == n && !self.is_same(out) && has_rows(out)) {
    return multiply(
        mat1, mat2, self.contiguous(), Addend::bias, beta, alpha, out);
  }
  if (!self.is_same(out)) {
    out.copy_(self);
  }
  multiply(mat1, mat2, {}, Addend::accumulate, beta, alpha, out);
}

Tensor make_out(const Tensor& mat1, const Tensor& mat2) {
  return at::detail::empty_cpu(product_sizes(mat1, mat2), mat1.options());
}

// The two-dimensional and the batched operators differ in the number of
// dimensions and in torch's own kernel.

template <int64_t kDim>
struct Product {
  static Reason why_not(const Tensor& mat1, const Tensor& mat2) {
    return why_not_multiply(mat1, mat2, kDim, /*added=*/false);
  }
  static Reason
  why_not_out(const Tensor& mat1, const Tensor& mat2, const Tensor& out) {
    const auto reason = why_not(mat1, mat2);
    return reason != nullptr ? reason : why_not_into(out, mat1, mat2);
  }

  static Tensor run(const Tensor& mat1, const Tensor& mat2) {
    Tensor out = make_out(mat1, mat2);
    return run_out(mat1, mat2, out);
  }
  static Tensor& run_out(const Tensor& mat1, const Tensor& mat2, Tensor& out) {
    multiply(mat1, mat2, {}, Addend::none, 0, 1, out);
    return out;
  }
};

template <int64_t kDim>
struct Sum {
  static Reason why_not(
      const Tensor& self,
      const Tensor& mat1,
      const Tensor& mat2,
      const Scalar& beta,
      const Scalar& alpha) {
    if (const auto reason =
            why_not_multiply(mat1, mat2, kDim, /*added=*/true)) {
      return reason;
    }
    constexpr Reason kFactors = "factors that float cannot represent";
    if (beta.isComplex() || alpha.isComplex()) {
      return kFactors;
    }
    const auto b = static_cast<float>(beta.toDouble());
    const auto a = static_cast<float>(alpha.toDouble());
    return !std::isfinite(b) || !std::isfinite(a) || a == 0 ? kFactors
           : self.scalar_type() != mat1.scalar_type()       ? why::kTypes
           : !is_dense(self)                                ? why::kLayout
           : !is_expandable_to(self.sizes(), product_sizes(mat1, mat2))
               ? why::kSizes
               : nullptr;
  }
  static Reason why_not_out(
      const Tensor& self,
      const Tensor& mat1,
      const Tensor& mat2,
      const Scalar& beta,
      const Scalar& alpha,
      const Tensor& out) {
    if (const auto reason = why_not(self, mat1, mat2, beta, alpha)) {
      return reason;
    }
    if (const auto reason = why_not_into(out, mat1, mat2)) {
      return reason;
    }
    return !self.is_same(out) && !are_apart(self, out) ? why::kOverlap
                                                       : nullptr;
  }
  static Reason why_not_in_place(
      const Tensor& self,
      const Tensor& mat1,
      const Tensor& mat2,
      const Scalar& beta,
      const Scalar& alpha) {
    return why_not_out(self, mat1, mat2, beta, alpha, self);
  }

  static Tensor run(
      const Tensor& self,
      const Tensor& mat1,
      const Tensor& mat2,
      const Scalar& beta,
      const Scalar& alpha) {
    Tensor out = make_out(mat1, mat2);
    return run_out(self, mat1, mat2, beta, alpha, out);
  }
  static Tensor& run_out(
      const Tensor& self,
      const Tensor& mat1,
      const Tensor& mat2,
      const Scalar& beta,
      const Scalar& alpha,
      Tensor& out) {
    add_product(self, mat1, mat2, beta, alpha, out);
    return out;
  }
  static Tensor& run_in_place(
      Tensor& self,
      const Tensor& mat1,
      const Tensor& mat2,
      const Scalar& beta,
      const Scalar& alpha) {
    return run_out(self, mat1, mat2, beta, alpha, self);
  }
};

template <
    Name kName,
    int64_t kDim,
    auto kStock,
    auto kStockOut,
    class Of = Product<kDim>>
struct Products {
  using Plain = Row<kName, Needs::primitives, Of::why_not, Of::run, kStock>;
  using Out =
      Row<kName + ".out",
          Needs::primitives,
          Of::why_not_out,
          Of::run_out,
          kStockOut>;
};
template <
    Name kName,
    int64_t kDim,
    auto kStock,
    auto kStockOut,
    auto kStockInPlace>
struct Sums : Products<kName, kDim, kStock, kStockOut, Sum<kDim>> {
  using InPlace =
      Row<kName + "_",
          Needs::primitives,
          Sum<kDim>::why_not_in_place,
          Sum<kDim>::run_in_place,
          kStockInPlace>;
};

using Mm = Products<
    "aten::mm", // .96-1.04, .65-1.0
    2,
    at::cpu::mm,
    at::cpu::mm_outf>;
using Addmm = Sums<
    "aten::addmm", // .44-1.06, .29-1.35
    2,
    at::cpu::addmm,
    at::cpu::addmm_outf,
    at::cpu::addmm_>;
using Bmm = Products<
    "aten::bmm", // .88-1.0, .4-1.17
    3,
    at::cpu::bmm,
    at::cpu::bmm_outf>;
using Baddbmm = Sums<
    "aten::baddbmm", // .98-.99, .49-.83
    3,
    at::cpu::baddbmm,
    at::cpu::baddbmm_outf,
    at::cpu::baddbmm_>;

} // namespace

void list_products(torch::Library& m) {
  add_rows<
      Mm::Plain,
      Mm::Out,
      Addmm::Plain,
      Addmm::Out,
      Addmm::InPlace,
      Bmm::Plain,
      Bmm::Out,
      Baddbmm::Plain,
      Baddbmm::Out,
      Baddbmm::InPlace>(m);
}

Tensor product(const Tensor& added, const Tensor& a, const Tensor& b) {
  const bool alone = !added.defined();
  return a.dim() == 2 ? (alone ? Mm::Plain::call(a, b)
                               : Addmm::Plain::call(added, a, b, 1, 1))
                      : (alone ? Bmm::Plain::call(a, b)
                               : Baddbmm::Plain::call(added, a, b, 1, 1));
}

void product_out(
    const Tensor& added,
    const Tensor& a,
    const Tensor& b,
    Tensor& out) {
  if (added.defined()) {
    Addmm::Out::call(added, a, b, 1, 1, out);
  } else {
    Mm::Out::call(a, b, out);
  }
}

} // namespace at::native::zendnn::cpu
