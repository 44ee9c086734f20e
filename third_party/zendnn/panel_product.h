// A matrix product whose right matrix, the weights, is cut into panels as wide
// as a tile of registers. Each panel is read once, in order, while the next one
// is prefetched. Panels are prepacked weights (in one of three widths), or are
// packed from plain weights or from an image just before use.
//
// The primitives in panel_matmul.h, panel_convolution.h and
// panel_plain_convolution.h describe such a product and run it; panel_reorder.h
// prepacks weights for the first.
#pragma once

#include "third_party/zendnn/panel_image.h"
#include "third_party/zendnn/panel_kernel.h"

#include "common/memory_desc_wrapper.hpp"
#include "common/memory_tracking.hpp"
#include "common/primitive_exec_types.hpp"
#include "common/type_helpers.hpp"

#include <algorithm>
#include <array>
#include <memory>

namespace zendnn::impl::cpu::x64 {

inline dim_t size_of(data_type_t type) {
  return static_cast<dim_t>(types::data_type_size(type));
}

inline dim_t bytes_of(const memory_desc_t& md, dim_t elements) {
  return elements * size_of(md.data_type);
}

// A negative dimension counts from the last one.
inline dim_t stride_of(const memory_desc_t& md, int dimension) {
  return md.format_desc.blocking
      .strides[dimension < 0 ? md.ndims + dimension : dimension];
}

// The layout of weights of (depth, columns).
enum class panel_layout_t {
  panels,  // prepacked
  columns, // plain, each column contiguous
  rows,    // plain, each row contiguous
  image    // a convolution's input (im2col)
};

struct panel_weights_t {
  panel_layout_t layout;
  dim_t row_stride, column_stride; // bytes, of plain weights
  panel_image_t image;
};

// Describes plain weights of (depth, columns) in rows or columns, or a batch of
// them; false for other strides.
bool set_plain_weights(panel_weights_t& weights, const memory_desc_t& md);

// Packs `steps` of a panel's plain weights, which start at `first`; a step of
// the depth is one float or a pair of bfloat16.
void pack_panel(
    const panel_weights_t& weights,
    data_type_t type,
    const char* first,
    dim_t steps,
    dim_t columns,
    dim_t width,
    float* packed);

// Sums of float32 are made in parts of so many steps of the depth, since the
// rounding errors of one sum grow with its length: of 768 positive products, in
// one part, they were six times those of a sum in blocks. Torch's own products
// sum blocks of a few hundred, its convolutions shorter ones.
constexpr dim_t kProductPart = 256, kConvolutionPart = 128;

struct panel_problem_t {
  dim_t rows, columns, depth; // even depth for bfloat16
  data_type_t type;           // of the source and the weights
  data_type_t dst_type;
  data_type_t bias_type;        // undef without one
  dim_t src_stride, dst_stride; // bytes from row to row
  bool src_transposed; // contiguous columns, in float32 only; the stride is
                       // then from step to step of the depth
  panel_weights_t weights;
  int vectors;        // of a panel: 2, 3 or 4
  dim_t padded_depth; // of packed weights
  bool bias_by_row;   // otherwise one number per column
  dim_t part;         // of the depth, see kProductPart
  // The number of products; bytes from one to the next, 0 for shared operands.
  dim_t batch = 1;
  dim_t src_batch_stride, weights_batch_stride, dst_batch_stride;
};

// Whether the kernels accept these types on this CPU: float32, or bfloat16 with
// an even depth.
bool panel_takes_types(
    data_type_t src,
    data_type_t weights,
    data_type_t dst,
    data_type_t bias,
    dim_t depth);

// Accepts functions, sums with dst, and operands that are one number, one per
// column (not for a batch), or of the size of a dense result.
bool panel_takes_post_ops(const post_ops_t& post_ops, const memory_desc_t& dst);

// The best number of vectors of a panel for these columns.
int panel_vectors(dim_t columns);

struct range_t {
  dim_t begin, end;
  dim_t size() const {
    return end - begin;
  }
};

// How kernels read weights.
enum class panel_use_t {
  in_place, // step by step, in place
  rows,     // the same for a large matrix, some rows at a time
  pack,     // from a panel that is packed first
  dots      // column by column, in place
};

// How a product is split. A step of the depth is one float or a pair of
// bfloat16.
struct panel_plan_t {
  panel_plan_t() = default;
  explicit panel_plan_t(const panel_problem_t& problem);

  dim_t width() const { // columns of a panel
    return dim_t{problem.vectors} * kPanelLanes;
  }
  dim_t columns_of(dim_t panel) const { // fewer in the last panel
    return std::min(width(), problem.columns - panel * width());
  }
  // The last panel has its own kernels.
  bool is_narrow(dim_t panel) const {
    return panel == panels - 1;
  }
  // Whether a block's sums start at 0, and whether they are the result. Dot
  // products are summed before the kernels run.
  bool is_first(dim_t block) const {
    return block == 0 && weights_use != panel_use_t::dots;
  }
  bool is_last(dim_t block) const {
    return block == blocks - 1;
  }
  dim_t steps_of(dim_t index) const { // fewer in the last block
    return std::min(block, steps - index * block);
  }
  // Whether a block's weights directly follow those of the block before.
  bool next_is_contiguous() const;
  // Floats of scratch per thread: sums between blocks (of each panel), a packed
  // panel, a transposed chunk of the source, and the stride of its rows.
  dim_t sums_of_panel() const;
  dim_t sums_size() const;
  dim_t panel_size() const;
  dim_t transposed_size() const;
  dim_t transposed_stride() const;
  // The kernels' strides in bytes, from row to row and from step to step, and
  // whether a step of the weights has a panel's full width.
  dim_t src_stride() const;
  dim_t src_step() const;
  dim_t weights_step() const;
  bool weights_are_padded() const {
    return weights_use == panel_use_t::pack ||
           problem.weights.layout == panel_layout_t::panels;
  }
  dim_t scratch_size() const {
    return sums_size() + panel_size() + transposed_size();
  }
  void book(memory_tracking::registrar_t scratchpad) const;
  // A thread's unit of work: a chunk of rows times a panel. Chunks count
  // through all products. Items are ordered by band, chunk, panel.
  struct item_t {
    dim_t chunk, panel;
    range_t band; // panels
  };
  item_t at(dim_t index) const;

  panel_problem_t problem{};
  panel_use_t weights_use = panel_use_t::in_place;
  bool transposes_source = false; // otherwise it is read in place
  dim_t steps = 0;                // of the whole depth
  dim_t panels = 0;               // of the columns
  dim_t blocks = 0, block = 0;    // of the depth: their number, and their steps
  dim_t chunks = 0;               // of the rows
  dim_t bands = 1; // groups of panels, whose items are consecutive
  // Panels whose current block a thread multiplies before it goes on to the
  // next block: several for weights in rows, where they are close in memory.
  dim_t together = 1;
  int threads = 0;
};

struct panel_operands_t {
  const char *src, *weights, *bias;
  char* dst;
  const void* dst_origin; // the start of the result's memory
  const void* post_ops;   // the operands of post-ops
};

class panel_product_t {
 public:
  status_t init(
      const panel_plan_t& plan,
      const post_ops_t& post_ops,
      const memory_desc_t& dst);

  // Runs a primitive described by `pd`; its arguments `source` and `weights`
  // are the left and the right matrix.
  status_t execute(
      const primitive_desc_t& pd,
      const exec_ctx_t& ctx,
      int source = ZENDNN_ARG_SRC,
      int weights = ZENDNN_ARG_WEIGHTS) const;

 private:
  // A thread's scratch: sums between blocks, a packed panel, and the last
  // transposed chunk of the source.
  struct memory_t {
    float *sums, *packed, *transposed;
    const char* transposed_source;
  };
  struct place_t {
    dim_t panel, block;
  };
  // Rows, and the panels that a thread multiplies by them.
  struct chunk_t {
    const char *src, *weights, *bias;
    char* dst;
    dim_t rows;
    range_t panels;
  };

  void run(
      const panel_operands_t& operands,
      const memory_tracking::grantor_t& scratchpad) const;
  const char* source(const char* src, dim_t rows, memory_t& memory) const;
  // The panel after the last one at the end.
  place_t next(place_t place, const range_t& panels) const;
  void multiply(
      const chunk_t& chunk,
      place_t place,
      place_t then,
      const panel_operands_t& operands,
      const memory_t& memory) const;

  // Kernels by rows of the tile, first and last block, and last panel. An
  // array, since a search in a tree takes as long as a small tile.
  using kernel_t = std::shared_ptr<const panel_kernel_t>;
  kernel_t& kernel(dim_t rows, bool first, bool last, bool narrow) {
    return kernels_[(rows * 2 + first) * 4 + last * 2 + narrow];
  }
  const kernel_t& kernel(dim_t rows, bool first, bool last, bool narrow) const {
    return kernels_[(rows * 2 + first) * 4 + last * 2 + narrow];
  }

  // The weights of a panel from `step` of the depth, in place.
  const char* weights_at(const char* weights, dim_t panel, dim_t step) const;
  // Packs `steps` of a panel from plain weights or an image.
  void make_panel(
      const char* weights,
      dim_t panel,
      dim_t step,
      dim_t steps,
      float* packed) const;

  panel_plan_t plan_;
  std::array<kernel_t, (panel_rows(1) + 1) * 8> kernels_;
};

} // namespace zendnn::impl::cpu::x64
