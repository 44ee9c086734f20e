// mm, addmm, bmm and baddbmm on ZenDNN's matmul primitive with plain strides:
// no weight is packed, so nothing can go stale.
#include <ATen/native/zendnn/cpu/Overrides.h>

#include <ATen/CPUFunctions.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/native/zendnn/Context.h>
#include <ATen/native/zendnn/Operands.h>
#include <ATen/native/zendnn/Utils.h>
#include <ATen/native/zendnn/ZENDNNCommon.h>
#include <ATen/native/zendnn/cpu/BoundPrimitive.h>
#include <ATen/native/zendnn/cpu/LeftToTorch.h>
#include <ATen/native/zendnn/cpu/RecentPrimitives.h>

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
  using Desc = ::zendnn::matmul::primitive_desc;
  const auto& engine = adeep::engine::cpu_engine();
  const auto desc = bias.is_zero() ? Desc(engine, a, b, out, attr)
                                   : Desc(engine, a, b, bias, out, attr);
  return {
      ::zendnn::matmul(desc),
      {{ZENDNN_ARG_SRC, a},
       {ZENDNN_ARG_WEIGHTS, b},
       {ZENDNN_ARG_BIAS, bias},
       {ZENDNN_ARG_DST, out}}};
}

// What ZenDNN can describe: one of the last two dimensions is contiguous, and
// no two elements share a place (as they do in expanded and unfolded tensors).
bool is_plain_matrix(const Tensor& t) {
  const auto dim = t.dim();
  // Stride and size, sorted while they are few.
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

// Strides of dimensions of size one say nothing; ZenDNN reads them, though.
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

// Whether ZenDNN does mat1 @ mat2: dtypes, ranks and sizes that agree, and
// something to gain, be it alone or added to something. Says nothing about
// errors: torch's kernel reports them.
bool takes(
    const Tensor& mat1,
    const Tensor& mat2,
    int64_t dim,
    bool added = false) {
  if (!enabled() || mat1.dim() != dim || mat2.dim() != dim ||
      mat1.scalar_type() != mat2.scalar_type() || !is_dense(mat1) ||
      !is_dense(mat2) || !takes_dtype(mat1.scalar_type())) {
    return false;
  }
  const auto m = mat1.size(dim - 2), k = mat1.size(dim - 1),
             n = mat2.size(dim - 1);
  const auto batch = dim == 3 ? mat1.size(0) : 1;
  return k == mat2.size(dim - 2) && (dim == 2 || batch == mat2.size(0)) &&
         !leaves_product(mat1.scalar_type(), batch, m, k, n, added);
}

DimVector product_sizes(const Tensor& mat1, const Tensor& mat2) {
  DimVector sizes(mat1.sizes());
  sizes.back() = mat2.sizes().back();
  return sizes;
}

// Whether a result can be written into out as it is.
bool takes_out(const Tensor& out, const Tensor& mat1, const Tensor& mat2) {
  return is_dense(out) && out.scalar_type() == mat1.scalar_type() &&
         out.sizes() == IntArrayRef(product_sizes(mat1, mat2)) &&
         is_plain_matrix(out) && are_apart(out, mat1) && are_apart(out, mat2);
}

// The same of self * beta + (mat1 @ mat2) * alpha. Factors that no float holds
// are torch's business.
bool takes_sum(
    const Tensor& self,
    const Tensor& mat1,
    const Tensor& mat2,
    const Scalar& beta,
    const Scalar& alpha,
    int64_t dim) {
  if (!takes(mat1, mat2, dim, /*added=*/true) || beta.isComplex() ||
      alpha.isComplex()) {
    return false;
  }
  const auto b = static_cast<float>(beta.toDouble());
  const auto a = static_cast<float>(alpha.toDouble());
  return std::isfinite(b) && std::isfinite(a) && a != 0 &&
         self.scalar_type() == mat1.scalar_type() && is_dense(self) &&
         is_expandable_to(self.sizes(), product_sizes(mat1, mat2));
}

// Whether rows lie side by side, as all fast kernels write them.
bool has_rows(const Tensor& out) {
  return out.stride(-1) == 1 || out.size(-1) == 1;
}

void run(
    const Tensor& mat1,
    const Tensor& mat2,
    const Tensor& bias,
    Addend addend,
    float beta,
    float alpha,
    const Tensor& out) {
  if (!has_rows(out)) { // (a @ b).T is b.T @ a.T
    return run(mat2.mT(), mat1.mT(), bias, addend, beta, alpha, out.mT());
  }
  // ZenDNN repeats a matrix that is the same for the whole batch, if the other
  // one is not.
  const auto once = [](const Tensor& t, const Tensor& other) {
    return as_plain_matrix(
        is_repeated(t) && !is_repeated(other) ? t.narrow(0, 0, 1) : t);
  };
  const auto a = once(mat1, mat2), b = once(mat2, mat1);
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
  thread_local RecentPrimitives<Problem, BoundPrimitive, ProblemHash> recent;
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
    return run(mat1, mat2, {}, Addend::none, 0, alpha, out);
  }
  const auto n = mat2.sizes().back();
  if (beta == 1 && alpha == 1 && self.numel() == n && self.dim() >= 1 &&
      self.sizes().back() == n && !self.is_same(out) && has_rows(out)) {
    return run(mat1, mat2, self.contiguous(), Addend::bias, beta, alpha, out);
  }
  if (!self.is_same(out)) {
    out.copy_(self);
  }
  run(mat1, mat2, {}, Addend::accumulate, beta, alpha, out);
}

Tensor make_out(const Tensor& mat1, const Tensor& mat2) {
  return at::detail::empty_cpu(product_sizes(mat1, mat2), mat1.options());
}

// Whether self shares memory with out other than by being it.
bool aliases(const Tensor& self, const Tensor& out) {
  return !self.is_same(out) && !are_apart(self, out);
}

// The two-dimensional operators and their batched siblings differ in the number
// of dimensions and in torch's own kernel, which takes what ZenDNN does not.

Tensor product(
    const Tensor& mat1,
    const Tensor& mat2,
    int64_t dim,
    Tensor (*stock)(const Tensor&, const Tensor&)) {
  if (!takes(mat1, mat2, dim)) {
    return stock(mat1, mat2);
  }
  Tensor out = make_out(mat1, mat2);
  run(mat1, mat2, {}, Addend::none, 0, 1, out);
  return out;
}

Tensor& product_out(
    const Tensor& mat1,
    const Tensor& mat2,
    Tensor& out,
    int64_t dim,
    Tensor& (*stock)(const Tensor&, const Tensor&, Tensor&)) {
  if (!takes(mat1, mat2, dim) || !takes_out(out, mat1, mat2)) {
    return stock(mat1, mat2, out);
  }
  run(mat1, mat2, {}, Addend::none, 0, 1, out);
  return out;
}

Tensor sum(
    const Tensor& self,
    const Tensor& mat1,
    const Tensor& mat2,
    const Scalar& beta,
    const Scalar& alpha,
    int64_t dim,
    Tensor (*stock)(
        const Tensor&,
        const Tensor&,
        const Tensor&,
        const Scalar&,
        const Scalar&)) {
  if (!takes_sum(self, mat1, mat2, beta, alpha, dim)) {
    return stock(self, mat1, mat2, beta, alpha);
  }
  Tensor out = make_out(mat1, mat2);
  add_product(self, mat1, mat2, beta, alpha, out);
  return out;
}

Tensor& sum_out(
    const Tensor& self,
    const Tensor& mat1,
    const Tensor& mat2,
    const Scalar& beta,
    const Scalar& alpha,
    Tensor& out,
    int64_t dim,
    Tensor& (*stock)(
        const Tensor&,
        const Tensor&,
        const Tensor&,
        const Scalar&,
        const Scalar&,
        Tensor&)) {
  if (!takes_sum(self, mat1, mat2, beta, alpha, dim) ||
      !takes_out(out, mat1, mat2) || aliases(self, out)) {
    return stock(self, mat1, mat2, beta, alpha, out);
  }
  add_product(self, mat1, mat2, beta, alpha, out);
  return out;
}

Tensor& sum_in_place(
    Tensor& self,
    const Tensor& mat1,
    const Tensor& mat2,
    const Scalar& beta,
    const Scalar& alpha,
    int64_t dim,
    Tensor& (*stock)(
        Tensor&,
        const Tensor&,
        const Tensor&,
        const Scalar&,
        const Scalar&)) {
  if (!takes_sum(self, mat1, mat2, beta, alpha, dim) ||
      !takes_out(self, mat1, mat2)) {
    return stock(self, mat1, mat2, beta, alpha);
  }
  add_product(self, mat1, mat2, beta, alpha, self);
  return self;
}

} // namespace

Tensor mm(const Tensor& self, const Tensor& mat2) {
  return product(self, mat2, 2, at::cpu::mm);
}

Tensor& mm_out(const Tensor& self, const Tensor& mat2, Tensor& out) {
  return product_out(self, mat2, out, 2, at::cpu::mm_outf);
}

Tensor addmm(
    const Tensor& self,
    const Tensor& mat1,
    const Tensor& mat2,
    const Scalar& beta,
    const Scalar& alpha) {
  return sum(self, mat1, mat2, beta, alpha, 2, at::cpu::addmm);
}

Tensor& addmm_out(
    const Tensor& self,
    const Tensor& mat1,
    const Tensor& mat2,
    const Scalar& beta,
    const Scalar& alpha,
    Tensor& out) {
  return sum_out(self, mat1, mat2, beta, alpha, out, 2, at::cpu::addmm_outf);
}

Tensor& addmm_(
    Tensor& self,
    const Tensor& mat1,
    const Tensor& mat2,
    const Scalar& beta,
    const Scalar& alpha) {
  return sum_in_place(self, mat1, mat2, beta, alpha, 2, at::cpu::addmm_);
}

Tensor bmm(const Tensor& self, const Tensor& mat2) {
  return product(self, mat2, 3, at::cpu::bmm);
}

Tensor& bmm_out(const Tensor& self, const Tensor& mat2, Tensor& out) {
  return product_out(self, mat2, out, 3, at::cpu::bmm_outf);
}

Tensor baddbmm(
    const Tensor& self,
    const Tensor& batch1,
    const Tensor& batch2,
    const Scalar& beta,
    const Scalar& alpha) {
  return sum(self, batch1, batch2, beta, alpha, 3, at::cpu::baddbmm);
}

Tensor& baddbmm_out(
    const Tensor& self,
    const Tensor& batch1,
    const Tensor& batch2,
    const Scalar& beta,
    const Scalar& alpha,
    Tensor& out) {
  return sum_out(
      self, batch1, batch2, beta, alpha, out, 3, at::cpu::baddbmm_outf);
}

Tensor& baddbmm_(
    Tensor& self,
    const Tensor& batch1,
    const Tensor& batch2,
    const Scalar& beta,
    const Scalar& alpha) {
  return sum_in_place(self, batch1, batch2, beta, alpha, 3, at::cpu::baddbmm_);
}

} // namespace at::native::zendnn::cpu
