// A product of matrices as ZenDNN's own primitive: the right one is cut into
// panels of as many columns as a tile of registers has, and each panel is read
// once, in order, while the next one is fetched from memory. Panels are packed
// weights (any of three layouts), or made of plain ones while they are used.
#pragma once

#include "third_party/zendnn/panel_kernel.h"

#include "common/primitive.hpp"
#include "cpu/matmul/cpu_matmul_pd.hpp"

#include <map>
#include <tuple>

namespace zendnn::impl::cpu::x64 {

struct panel_matmul_t : public primitive_t {
  enum class Layout { panels, rows, columns }; // of the weights

  struct pd_t : public cpu::matmul::cpu_matmul_pd_t {
    using cpu_matmul_pd_t::cpu_matmul_pd_t;
    DECLARE_COMMON_PD_T("zen:panel:avx512_core", panel_matmul_t);

    // Takes float32 and bfloat16 (with an even depth), two dimensions, and
    // rows of the source and the result that are contiguous.
    status_t init(engine_t* engine);

    // How the work is cut.
    struct plan_t {
      Layout layout;
      int vectors;         // of a panel
      dim_t panels;        // columns / (16 · vectors)
      dim_t depth;         // in steps, as packed weights are padded
      dim_t blocks, block; // of the depth: how many, and their steps
      dim_t chunks;        // of the rows
      int threads;
    };
    const plan_t& plan() const {
      return plan_;
    }
    dim_t steps() const { // of one float, or of a pair of bfloat16
      return K() * static_cast<dim_t>(types::data_type_size(type())) / 4;
    }
    data_type_t type() const {
      return src_md_.data_type;
    }
    const char* weights_at(const char* weights, dim_t panel, dim_t step) const;
    void pack(const char* weights, dim_t panel, dim_t steps, float* packed)
        const;
    // Whether each block's weights begin where those of the one before end.
    bool next_is_contiguous() const;
    // Floats of a thread's sums, and of its panel that was made of plain ones.
    dim_t sums_size() const;
    dim_t panel_size() const;

   private:
    bool takes_types() const;
    bool takes_post_ops() const;
    bool set_weights_layout();
    void make_plan();

    plan_t plan_{};
  };

  explicit panel_matmul_t(const pd_t* apd) : primitive_t(apd) {}
  status_t init(engine_t* engine) override;
  status_t execute(const exec_ctx_t& ctx) const override;

 private:
  // By rows, blocks before and behind, and whether the panel is the last one.
  using key_t = std::tuple<int, bool, bool, bool>;

  const pd_t* pd() const {
    return static_cast<const pd_t*>(primitive_t::pd().get());
  }
  std::map<key_t, std::unique_ptr<panel_kernel_t>> kernels_;
};

} // namespace zendnn::impl::cpu::x64
