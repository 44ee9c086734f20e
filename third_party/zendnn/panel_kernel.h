// The inner loops of panel_product.h, assembled for a column of tiles of one
// size.
#pragma once

#include "third_party/zendnn/versions.h"

#include <memory>

namespace zendnn::impl::cpu::x64 {

// Floats, or pairs of bfloat16, per vector.
constexpr int kPanelLanes = 16;
// Bytes of a vector, and of a cache line.
constexpr int kPanelLine = 64;
// The depth has steps of one float or one pair of bfloat16; the loop is
// unrolled by this many steps.
constexpr int kPanelUnroll = 4;

// Rows of a tile that leave registers for the weights and the source.
constexpr int panel_rows(int vectors) {
  return vectors <= 2 ? 14 : vectors == 3 ? 9 : 6;
}

// A tile of rows × columns, in float32 or in bfloat16 (pairs).
struct panel_kernel_conf_t {
  data_type_t type; // of the source and the weights
  data_type_t dst_type;
  data_type_t bias_type;        // undef without one
  bool bias_by_row;             // otherwise one number per column
  int rows;                     // at most panel_rows(vectors)
  int vectors;                  // of a panel
  int columns;                  // fewer than the width in the last panel
  bool padded;                  // weights have a panel's full width
  dim_t src_stride, dst_stride; // bytes from row to row
  dim_t src_step, weights_step; // bytes from step to step of the depth
  bool first, last; // of the depth's blocks: starts at zero, writes the result
  int prefetch;     // lines of the next block that a group of steps prefetches
  bool next_rows;   // instead, each step prefetches a row of the next block
  int part;         // groups of steps that sums of float32 are parted into

#if __cplusplus >= 202002L // ZenDNN's lists of implementations are C++11
  auto operator<=>(const panel_kernel_conf_t&) const = default;
#endif
};

// The kernel advances src, next, bias, dst and sums with each tile.
struct panel_kernel_args_t {
  const char *src, *next, *bias; // advances the bias only if it is by row
  char* dst;
  float* sums; // (rows, panel) between the blocks of the depth
  size_t tiles;
  const void* weights;
  size_t groups, steps; // of the depth: whole groups, and the remainder
  size_t next_share;    // bytes that each tile prefetches
  const void* post_ops_operands;
  const void* dst_origin;
};

class panel_kernel_t : public jit_generator_t {
 public:
  DECLARE_CPU_JIT_AUX_FUNCTIONS(panel_kernel_t)

  // Finds or assembles a kernel. Products of other numbers of rows have the
  // same ones, since tiles have few heights, unless post-ops read operands.
  static status_t get(
      const panel_kernel_conf_t& conf,
      const post_ops_t& post_ops,
      const memory_desc_t& dst,
      std::shared_ptr<const panel_kernel_t>& kernel);

 private:
  panel_kernel_t(
      const panel_kernel_conf_t& conf,
      const post_ops_t& post_ops,
      const memory_desc_t& dst);
  bool applies(const post_ops_t& post_ops, const memory_desc_t& dst) const;
  void generate() override;
  void make_tile();
  void next_tile();
  void clear_sums();
  void add_part();
  void store_part();
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
  Xbyak::Zmm left(int row) const { // alternates two registers if available
    const int spare = 32 - conf_.rows * vectors() - vectors();
    return Xbyak::Zmm(vectors() + (spare > 1 ? row % 2 : 0));
  }
  bool sums_parts() const {
    return conf_.type == data_type::f32;
  }
  Xbyak::Address part_at(int row, int vector) { // of the sums of earlier parts
    return ptr[rsp + (row * vectors() + vector) * kPanelLine];
  }
  dim_t dst_offset(int row, int vector) const;
  Xbyak::Address sums_at(int row, int vector) const;

  const panel_kernel_conf_t conf_;
  const post_ops_t post_ops_;
  const memory_desc_t result_; // its strides place the operands of post-ops
  std::unique_ptr<post_ops_injector_t> injector_;

  // param1 stays unchanged, since post-ops read it. They save r13 to r15.
  const Xbyak::Reg64 src_ = r8, weights_ = r9, dst_ = r10, next_ = r11,
                     count_ = rdx, sums_ = rbx, bias_ = r12, groups_ = rcx;
  const Xbyak::Opmask tail_ = k2; // injectors use k1
};

} // namespace zendnn::impl::cpu::x64
