// A convolution of plain images as a product of panel_product.h: the kernels
// are the rows of the source, pixels the columns of the result. Nothing is
// reordered into blocks, and no im2col matrix is in memory.
#pragma once

#include "third_party/zendnn/panel_product.h"

#include "common/primitive.hpp"
#include "cpu/cpu_convolution_pd.hpp"

namespace zendnn::impl::cpu::x64 {

struct panel_plain_convolution_t : public primitive_t {
  struct pd_t : public cpu_convolution_fwd_pd_t {
    using cpu_convolution_fwd_pd_t::cpu_convolution_fwd_pd_t;
    DECLARE_COMMON_PD_T(
        "zen:panel_plain:avx512_core",
        panel_plain_convolution_t,
        USE_GLOBAL_SCRATCHPAD);

    // Accepts two spatial dimensions, plain layouts that the caller chose, one
    // group, and no post-ops.
    status_t init(const_engine_t* engine);

    panel_plan_t plan;

   private:
    bool is_plain() const;
    panel_image_t image() const;
  };

  explicit panel_plain_convolution_t(const pd_t* apd) : primitive_t(apd) {}
  status_t init(engine_t* engine) override;
  status_t execute(const exec_ctx_t& ctx) const override;

 private:
  const pd_t* pd() const {
    return static_cast<const pd_t*>(primitive_t::pd().get());
  }
  panel_product_t product_;
};

} // namespace zendnn::impl::cpu::x64
