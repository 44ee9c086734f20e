// The inner loops of panel_product.h, assembled for tiles of one size, one
// below the other.
#pragma once

#include "common/primitive_attr.hpp"
#include "cpu/x64/injectors/jit_uni_postops_injector.hpp"
#include "cpu/x64/jit_generator.hpp"

namespace zendnn::impl::cpu::x64 {

// Floats that a vector holds; pairs of bfloat16 are as wide.
constexpr int kPanelLanes = 16;
// Bytes of a vector, and of a line of the cache.
constexpr int kPanelLine = 64;
// The depth advances in steps of one float or of a pair of bfloat16, and the
// loop in groups of so many steps.
constexpr int kPanelUnroll = 4;

// Rows of a tile that leaves registers for the weights and for the source.
constexpr int panel_rows(int vectors) {
  return vectors <= 2 ? 14 : vectors == 3 ? 9 : 6;
}

// A tile of rows × columns, in float32 or, from pairs, in bfloat16.
struct panel_kernel_conf_t {
  data_type_t type; // of the source and the weights
  data_type_t dst_type;
  data_type_t bias_type;        // undef without one
  bool bias_by_row;             // otherwise a number for each column
  int rows;                     // at most panel_rows(vectors)
  int vectors;                  // of a panel
  int columns;                  // fewer than those of a panel in the last one
  bool padded;                  // weights have all columns of a panel
  dim_t src_stride, dst_stride; // bytes from row to row
  dim_t src_step, weights_step; // bytes from step to step of the depth
  bool first, last; // of the blocks of the depth: from zero, to the result
  int prefetch;     // lines of the next block that a group of steps asks for
  bool next_rows;   // whether each step asks for a row of it instead
};

// Those of the first line move on with each tile.
struct panel_kernel_args_t {
  const char *src, *next, *bias; // the bias only if it is by rows
  char* dst;
  float* sums; // (rows, panel) between the blocks of the depth
  size_t tiles;
  const void* weights;
  size_t groups, steps; // of the depth: whole groups, and what is left
  size_t next_share;    // bytes that each tile asks for
  const void* post_ops_operands;
  const void* dst_origin;
};

class panel_kernel_t : public jit_generator {
 public:
  DECLARE_CPU_JIT_AUX_FUNCTIONS(panel_kernel_t)

  panel_kernel_t(
      const panel_kernel_conf_t& conf,
      const post_ops_t& post_ops,
      const memory_desc_t& dst);

 private:
  using injector_t = injector::jit_uni_postops_injector_base_t<Xbyak::Zmm>;

  void generate() override;
  void make_tile();
  void next_tile();
  void multiply(int step);
  void advance(int steps);
  void add_bias();
  void add_previous();
  void apply_post_ops();
  void store();
  void load(const Xbyak::Zmm& to, const Xbyak::Address& from, data_type_t, int);

  int vectors() const {
    return (conf_.columns + kPanelLanes - 1) / kPanelLanes;
  }
  bool is_tail(int vector) const {
    return (vector + 1) * kPanelLanes > conf_.columns;
  }
  Xbyak::Zmm sum(int row, int vector) const {
    return Xbyak::Zmm(31 - row * vectors() - vector);
  }
  Xbyak::Zmm weight(int vector) const {
    return Xbyak::Zmm(vector);
  }
  Xbyak::Zmm left(int row) const { // two take turns where there is room
    const int spare = 32 - conf_.rows * vectors() - vectors();
    return Xbyak::Zmm(vectors() + (spare > 1 ? row % 2 : 0));
  }
  dim_t dst_offset(int row, int vector) const;
  Xbyak::Address sums_at(int row, int vector) const;

  const panel_kernel_conf_t conf_;
  const post_ops_t post_ops_;
  std::unique_ptr<injector_t> injector_;

  // param1 stays: post-ops read it. They save what they use of r13 to r15.
  const Xbyak::Reg64 src_ = r8, weights_ = r9, dst_ = r10, next_ = r11,
                     count_ = rdx, sums_ = rbx, bias_ = r12;
  const Xbyak::Opmask tail_ = k2; // k1 is the injectors'
};

} // namespace zendnn::impl::cpu::x64
