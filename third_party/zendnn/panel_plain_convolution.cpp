#include "third_party/zendnn/panel_plain_convolution.h"

#include "common/utils.hpp"

namespace zendnn::impl::cpu::x64 {
namespace {

// With fewer points, a panel is mostly padding.
constexpr dim_t kFewestPoints = 32;

} // namespace

bool panel_plain_convolution_t::pd_t::is_plain() const {
  return memory_desc_matches_tag(src_md_, format_tag::nchw) &&
         memory_desc_matches_tag(weights_md_, format_tag::oihw) &&
         memory_desc_matches_tag(dst_md_, format_tag::nchw);
}

panel_image_t panel_plain_convolution_t::pd_t::image() const {
  return {
      .height = IH(),
      .width = IW(),
      .out_width = OW(),
      .kernel_height = KH(),
      .kernel_width = KW(),
      .stride_down = KSH(),
      .stride_across = KSW(),
      .dilation_down = KDH() + 1,
      .dilation_across = KDW() + 1,
      .top = padT(),
      .left = padL()};
}

status_t panel_plain_convolution_t::pd_t::init(const_engine_t* engine) {
  using skip = primitive_attr_t::skip_mask_t;
  VDISPATCH_CONV(is_fwd(), VERBOSE_BAD_PROPKIND);
  VDISPATCH_CONV(
      set_default_alg_kind(alg_kind::convolution_direct),
      VERBOSE_BAD_ALGORITHM);
  VDISPATCH_CONV(!has_zero_dim_memory(), VERBOSE_EMPTY_TENSOR, "");
  VDISPATCH_CONV(ndims() == 4 && !with_groups(), VERBOSE_SHAPE_RESTRICTION);
  VDISPATCH_CONV(is_plain(), VERBOSE_UNSUPPORTED_TAG);
  panel_problem_t problem{};
  problem.part = kConvolutionPart;
  problem.rows = OC();
  problem.columns = OH() * OW();
  problem.depth = IC() * KH() * KW();
  problem.type = src_md_.data_type;
  problem.dst_type = dst_md_.data_type;
  problem.bias_type = with_bias() ? bias_md_.data_type : data_type::undef;
  problem.bias_by_row = true;
  VDISPATCH_CONV(
      panel_takes_types(
          problem.type,
          weights_md_.data_type,
          problem.dst_type,
          problem.bias_type,
          problem.depth),
      VERBOSE_UNSUPPORTED_DT_CFG);
  VDISPATCH_CONV(
      attr()->has_default_values(skip::fpmath_mode), VERBOSE_UNSUPPORTED_ATTR);
  problem.weights.layout = panel_layout_t::image;
  problem.weights.image = image();
  VDISPATCH_CONV(
      problem.columns >= kFewestPoints && packs_image(problem.weights.image),
      VERBOSE_SHAPE_RESTRICTION);
  problem.vectors = panel_vectors(problem.columns);
  problem.src_stride = bytes_of(weights_md_, problem.depth);
  problem.dst_stride = bytes_of(dst_md_, problem.columns);
  VDISPATCH_CONV(
      std::max(problem.src_stride, problem.dst_stride) * panel_rows(2) <
          (dim_t{1} << 31),
      VERBOSE_SHAPE_RESTRICTION);
  problem.batch = MB();
  problem.weights_batch_stride = bytes_of(src_md_, IC() * IH() * IW());
  problem.dst_batch_stride = problem.rows * problem.dst_stride;
  plan = panel_plan_t(problem);
  plan.book(scratchpad_registry().registrar());
  return status::success;
}

status_t panel_plain_convolution_t::init(engine_t* /*engine*/) {
  return product_.init(pd()->plan, pd()->attr()->post_ops_, *pd()->dst_md());
}

status_t panel_plain_convolution_t::execute(const exec_ctx_t& ctx) const {
  return product_.execute(*pd(), ctx, ZENDNN_ARG_WEIGHTS, ZENDNN_ARG_SRC);
}

} // namespace zendnn::impl::cpu::x64
