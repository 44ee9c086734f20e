// The product of panel_product.h as a matmul.
#pragma once

#include "third_party/zendnn/panel_product.h"

#include "common/primitive.hpp"
#include "cpu/matmul/cpu_matmul_pd.hpp"

namespace zendnn::impl::cpu::x64 {

// Vectors of a panel of packed weights of (depth, columns); 0 if they are not
// packed.
int packed_panel_vectors(const memory_desc_t& weights);

struct panel_matmul_t : public primitive_t {
  struct pd_t : public cpu::matmul::cpu_matmul_pd_t {
    using cpu_matmul_pd_t::cpu_matmul_pd_t;
    DECLARE_COMMON_PD_T(
        "zen:panel:avx512_core",
        panel_matmul_t,
        USE_GLOBAL_SCRATCHPAD);

    // Accepts two dimensions, or three with a batch of plain matrices. The
    // result needs contiguous rows, the source contiguous rows or (in float32)
    // columns.
    status_t init(const_engine_t* engine);

    panel_plan_t plan;

   private:
    // Each sets its part, with layouts that the caller left open; returns
    // whether it is accepted.
    bool set_weights_layout(panel_problem_t& problem);
    bool set_strides(panel_problem_t& problem);
  };

  explicit panel_matmul_t(const pd_t* apd) : primitive_t(apd) {}
  status_t init(engine_t* engine) override;
  status_t execute(const exec_ctx_t& ctx) const override;

 private:
  const pd_t* pd() const {
    return static_cast<const pd_t*>(primitive_t::pd().get());
  }
  panel_product_t product_;
};

} // namespace zendnn::impl::cpu::x64
