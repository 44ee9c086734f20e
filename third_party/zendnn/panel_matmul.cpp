#include "third_party/zendnn/panel_matmul.h"

#include "common/utils.hpp"

namespace zendnn::impl::cpu::x64 {
namespace {

// With fewer rows, packing pairs of rows into a panel does not pay off.
constexpr dim_t kFewestRows = 48;
// Rows of a transposed source are kept in full; deeper ones would take too much
// memory.
constexpr dim_t kMostTransposedDepth = 1 << 15;

// Formats of packed weights, by vectors of a panel minus two.
constexpr format_tag_t kFloatPanels[]{
    format_tag::BA16a32b,
    format_tag::BA16a48b,
    format_tag::BA16a64b};
constexpr format_tag_t kPairPanels[]{
    format_tag::BA16a32b2a,
    format_tag::BA16a48b2a,
    format_tag::BA16a64b2a};

// Whether rows are contiguous, and a tile's rows are within a 32-bit offset.
bool is_rows(const memory_desc_t& md) {
  const memory_desc_wrapper wrapped(md);
  return !wrapped.has_runtime_dims_or_strides() && wrapped.is_plain() &&
         stride_of(md, -1) == 1 && stride_of(md, -2) >= md.dims[md.ndims - 1] &&
         bytes_of(md, stride_of(md, -2)) * panel_rows(2) < (dim_t{1} << 31);
}

// Whether columns are contiguous.
bool is_transposed(const memory_desc_t& md) {
  const memory_desc_wrapper wrapped(md);
  return !wrapped.has_runtime_dims_or_strides() && wrapped.is_plain() &&
         stride_of(md, -2) == 1 && stride_of(md, -1) >= md.dims[md.ndims - 2];
}

// Bytes from one matrix to the next; 0 if all products share one.
dim_t batch_stride(const memory_desc_t& md) {
  return md.dims[0] == 1 ? 0 : bytes_of(md, stride_of(md, 0));
}

const format_tag_t* panel_tags(data_type_t type) {
  return type == data_type::bf16 ? kPairPanels : kFloatPanels;
}

} // namespace

int packed_panel_vectors(const memory_desc_t& weights) {
  for (int i = 0; i < 3; ++i) {
    if (memory_desc_matches_tag(weights, panel_tags(weights.data_type)[i])) {
      return i + 2;
    }
  }
  return 0;
}

bool panel_matmul_t::pd_t::set_weights_layout(panel_problem_t& problem) {
  if (!batched() && memory_desc_wrapper(weights_md_).format_any() &&
      memory_desc_init_by_tag(weights_md_, panel_tags(problem.type)[1]) !=
          status::success) {
    return false;
  }
  if (!set_default_formats()) {
    return false;
  }
  if (const int vectors = packed_panel_vectors(weights_md_)) {
    problem.weights.layout = panel_layout_t::panels;
    problem.vectors = vectors;
    problem.padded_depth = weights_md_.padded_dims[0];
    return true;
  }
  problem.vectors = panel_vectors(N());
  return set_plain_weights(problem.weights, weights_md_);
}

bool panel_matmul_t::pd_t::set_strides(panel_problem_t& problem) {
  problem.src_transposed = !is_rows(src_md_);
  problem.src_stride =
      bytes_of(src_md_, stride_of(src_md_, problem.src_transposed ? -1 : -2));
  problem.dst_stride = bytes_of(dst_md_, stride_of(dst_md_, -2));
  if (batched()) {
    problem.batch = batch();
    problem.src_batch_stride = batch_stride(src_md_);
    problem.weights_batch_stride = batch_stride(weights_md_);
    problem.dst_batch_stride = batch_stride(dst_md_);
  }
  return is_rows(dst_md_) &&
         (!problem.src_transposed ||
          (problem.type == data_type::f32 && is_transposed(src_md_) &&
           problem.depth <= kMostTransposedDepth));
}

status_t panel_matmul_t::pd_t::init(const_engine_t* engine) {
  using skip = primitive_attr_t::skip_mask_t;
  VDISPATCH_MATMUL(is_dense_format_kind(), VERBOSE_UNSUPPORTED_SPARSE_CFG);
  VDISPATCH_MATMUL(ndims() <= 3, VERBOSE_BAD_NDIMS, "dst", ndims());
  VDISPATCH_MATMUL(!has_zero_dim_memory(), VERBOSE_EMPTY_TENSOR, "");
  panel_problem_t problem{};
  problem.part = kProductPart;
  problem.rows = M();
  problem.columns = N();
  problem.depth = K();
  problem.type = src_md_.data_type;
  problem.dst_type = dst_md_.data_type;
  problem.bias_type = with_bias() ? bias_md_.data_type : data_type::undef;
  VDISPATCH_MATMUL(
      panel_takes_types(
          problem.type,
          weights_md_.data_type,
          problem.dst_type,
          problem.bias_type,
          problem.depth),
      VERBOSE_UNSUPPORTED_DT_CFG);
  VDISPATCH_MATMUL(!with_bias() || is_bias_1xN(), VERBOSE_UNSUPPORTED_BIAS_CFG);
  VDISPATCH_MATMUL(
      attr()->has_default_values(
          skip::post_ops | skip::sum_dt | skip::fpmath_mode, problem.dst_type),
      VERBOSE_UNSUPPORTED_ATTR);
  VDISPATCH_MATMUL(
      set_weights_layout(problem) && set_strides(problem),
      VERBOSE_UNSUPPORTED_TAG);
  VDISPATCH_MATMUL(
      attr_.set_default_formats(dst_md(0)) == status::success &&
          panel_takes_post_ops(attr()->post_ops_, dst_md_),
      VERBOSE_UNSUPPORTED_POSTOP);
  plan = panel_plan_t(problem);
  VDISPATCH_MATMUL(
      plan.weights_use != panel_use_t::pack ||
          problem.weights.layout != panel_layout_t::rows || M() >= kFewestRows,
      VERBOSE_SHAPE_RESTRICTION);
  plan.book(scratchpad_registry().registrar());
  return status::success;
}

status_t panel_matmul_t::init(engine_t* /*engine*/) {
  return product_.init(pd()->plan, pd()->attr()->post_ops_, *pd()->dst_md());
}

status_t panel_matmul_t::execute(const exec_ctx_t& ctx) const {
  return product_.execute(*pd(), ctx);
}

} // namespace zendnn::impl::cpu::x64
