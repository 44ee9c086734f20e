// Packs plain weights into panel_matmul.h's layouts, many times faster than
// reorders that work element by element.
#pragma once

#include "third_party/zendnn/panel_product.h"

#include "common/primitive.hpp"
#include "common/zendnn_thread.hpp" // the next header needs it
#include "cpu/reorder/cpu_reorder_pd.hpp"

namespace zendnn::impl::cpu::x64 {

struct panel_reorder_t : public primitive_t {
  struct pd_t : public cpu_reorder_pd_t {
    using cpu_reorder_pd_t::cpu_reorder_pd_t;
    DECLARE_COMMON_PD_T("zen:panel_reorder:avx512_core", panel_reorder_t);

    status_t init(
        const_engine_t* engine,
        const_engine_t* src_engine,
        const_engine_t* dst_engine);

    panel_weights_t weights{};
    int vectors = 0; // of a panel

   private:
    static status_t create(
        reorder_pd_t** reorder_pd,
        const_engine_t* engine,
        const primitive_attr_t* attr,
        const_engine_t* src_engine,
        const memory_desc_t* src_md,
        const_engine_t* dst_engine,
        const memory_desc_t* dst_md);
    friend zendnn::impl::impl_list_item_t;
  };

  explicit panel_reorder_t(const pd_t* apd) : primitive_t(apd) {}
  status_t execute(const exec_ctx_t& ctx) const override;

 private:
  const pd_t* pd() const {
    return static_cast<const pd_t*>(primitive_t::pd().get());
  }
};

} // namespace zendnn::impl::cpu::x64
