// A 1x1 convolution as a product of panel_product.h: pixels are the rows of the
// source.
#pragma once

#include "third_party/zendnn/panel_product.h"

#include "common/primitive.hpp"
#include "cpu/cpu_convolution_pd.hpp"

namespace zendnn::impl::cpu::x64 {

struct panel_convolution_t : public primitive_t {
  struct pd_t : public cpu_convolution_fwd_pd_t {
    using cpu_convolution_fwd_pd_t::cpu_convolution_fwd_pd_t;
    DECLARE_COMMON_PD_T(
        "zen:panel_1x1:avx512_core",
        panel_convolution_t,
        USE_GLOBAL_SCRATCHPAD);

    // Accepts channels-last images with evenly spaced pixels, a stride of 1, no
    // padding, one group, and packed weights.
    status_t init(const_engine_t* engine);

    panel_plan_t plan;

   private:
    bool is_product() const;
    // Chooses layouts that the caller left open; returns whether all are
    // accepted.
    bool set_layouts(panel_problem_t& problem);
  };

  explicit panel_convolution_t(const pd_t* apd) : primitive_t(apd) {}
  status_t init(engine_t* engine) override;
  status_t execute(const exec_ctx_t& ctx) const override;

 private:
  const pd_t* pd() const {
    return static_cast<const pd_t*>(primitive_t::pd().get());
  }
  panel_product_t product_;
};

} // namespace zendnn::impl::cpu::x64
