#include "third_party/zendnn/panel_convolution.h"

#include "common/utils.hpp"

namespace zendnn::impl::cpu::x64 {
namespace {

// Formats of packed weights, by vectors of a panel minus two.
constexpr format_tag_t kFloatPanels[]{
    format_tag::Acdb32a,
    format_tag::Acdb48a,
    format_tag::Acdb64a};
constexpr format_tag_t kPairPanels[]{
    format_tag::AcdB32a2b,
    format_tag::AcdB48a2b,
    format_tag::AcdB64a2b};

// The bytes from pixel to pixel; 0 unless pixels are evenly spaced.
dim_t pixel_stride(const memory_desc_t& md) {
  const memory_desc_wrapper wrapped(md);
  if (wrapped.has_runtime_dims_or_strides() || !wrapped.is_plain() ||
      stride_of(md, 1) != 1) {
    return 0;
  }
  const auto pixel = stride_of(md, 3);
  const auto row = pixel * md.dims[3], image = row * md.dims[2];
  const bool even = pixel >= md.dims[1] &&
                    (md.dims[2] == 1 || stride_of(md, 2) == row) &&
                    (md.dims[0] == 1 || stride_of(md, 0) == image);
  const auto bytes = bytes_of(md, pixel);
  return even && bytes * panel_rows(2) < (dim_t{1} << 31) ? bytes : 0;
}

} // namespace

bool panel_convolution_t::pd_t::is_product() const {
  return ndims() == 4 && !with_groups() && KH() == 1 && KW() == 1 &&
         KSH() == 1 && KSW() == 1 && padT() == 0 && padB() == 0 &&
         padL() == 0 && padR() == 0;
}

bool panel_convolution_t::pd_t::set_layouts(panel_problem_t& problem) {
  const auto& tags =
      problem.type == data_type::bf16 ? kPairPanels : kFloatPanels;
  if (!set_default_formats_common(
          format_tag::nhwc, tags[panel_vectors(OC()) - 2], format_tag::nhwc)) {
    return false;
  }
  problem.weights.layout = panel_layout_t::panels;
  for (int i = 0; i < 3; ++i) {
    if (memory_desc_matches_tag(weights_md_, tags[i])) {
      problem.vectors = i + 2;
    }
  }
  problem.padded_depth = weights_md_.padded_dims[1];
  problem.src_stride = pixel_stride(src_md_);
  problem.dst_stride = pixel_stride(dst_md_);
  return problem.vectors > 0 && problem.src_stride > 0 &&
         problem.dst_stride > 0;
}

status_t panel_convolution_t::pd_t::init(const_engine_t* engine) {
  using skip = primitive_attr_t::skip_mask_t;
  VDISPATCH_CONV(is_fwd(), VERBOSE_BAD_PROPKIND);
  VDISPATCH_CONV(
      set_default_alg_kind(alg_kind::convolution_direct),
      VERBOSE_BAD_ALGORITHM);
  VDISPATCH_CONV(!has_zero_dim_memory(), VERBOSE_EMPTY_TENSOR, "");
  VDISPATCH_CONV(is_product(), VERBOSE_SHAPE_RESTRICTION);
  panel_problem_t problem{};
  problem.part = kConvolutionPart;
  problem.rows = MB() * OH() * OW();
  problem.columns = OC();
  problem.depth = IC();
  problem.type = src_md_.data_type;
  problem.dst_type = dst_md_.data_type;
  problem.bias_type = with_bias() ? bias_md_.data_type : data_type::undef;
  VDISPATCH_CONV(
      panel_takes_types(
          problem.type,
          weights_md_.data_type,
          problem.dst_type,
          problem.bias_type,
          problem.depth),
      VERBOSE_UNSUPPORTED_DT_CFG);
  VDISPATCH_CONV(
      attr()->has_default_values(
          skip::post_ops | skip::sum_dt | skip::fpmath_mode, problem.dst_type),
      VERBOSE_UNSUPPORTED_ATTR);
  VDISPATCH_CONV(set_layouts(problem), VERBOSE_UNSUPPORTED_TAG);
  VDISPATCH_CONV(
      attr_.set_default_formats(dst_md(0)) == status::success &&
          panel_takes_post_ops(attr()->post_ops_, dst_md_),
      VERBOSE_UNSUPPORTED_POSTOP);
  plan = panel_plan_t(problem);
  plan.book(scratchpad_registry().registrar());
  return status::success;
}

status_t panel_convolution_t::init(engine_t* /*engine*/) {
  return product_.init(pd()->plan, pd()->attr()->post_ops_, *pd()->dst_md());
}

status_t panel_convolution_t::execute(const exec_ctx_t& ctx) const {
  return product_.execute(*pd(), ctx);
}

} // namespace zendnn::impl::cpu::x64
