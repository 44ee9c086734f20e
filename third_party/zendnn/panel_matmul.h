// A panel_product.h as a matmul.
#pragma once

#include "third_party/zendnn/panel_product.h"

#include "common/primitive.hpp"
#include "cpu/matmul/cpu_matmul_pd.hpp"

namespace zendnn::impl::cpu::x64 {

// Vectors of the panels that weights of (depth, columns) are packed in; 0 if
// they are not.
int packed_panel_vectors(const memory_desc_t& weights);

struct panel_matmul_t : public primitive_t {
  struct pd_t : public cpu::matmul::cpu_matmul_pd_t {
    using cpu_matmul_pd_t::cpu_matmul_pd_t;
    DECLARE_COMMON_PD_T(
        "zen:panel:avx512_core",
        panel_matmul_t,
        USE_GLOBAL_SCRATCHPAD);

    // Takes two dimensions, or three whose first is a batch of plain matrices;
    // rows of the result that are contiguous, and rows or (in float32) columns
    // of the source that are.
    status_t init(engine_t* engine);

    panel_plan_t plan;

   private:
    // Chooses layouts where the caller has none; each says whether what it sets
    // is taken.
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
