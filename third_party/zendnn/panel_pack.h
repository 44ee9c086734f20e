// Packs plain weights into a panel, for panel_product.h.
#pragma once

#include <cstdint>

namespace zendnn::impl::cpu::x64 {

// A part of a matrix of 4-byte items: floats, or pairs of bfloat16 along the
// depth.
struct panel_source_t {
  const char* first; // the item at depth 0 and column 0
  int64_t stride;    // bytes from row to row
  int64_t depth;     // in items
  int64_t columns;   // at most the width
};

// Each writes `panel` as (depth, width) items, padded with zeros; the width is
// a multiple of 16.

// The matrix has one row of contiguous items per column.
void pack_columns(const panel_source_t& source, int64_t width, float* panel);
// The matrix has one row of contiguous items per step of the depth.
void pack_rows(const panel_source_t& source, int64_t width, float* panel);
// The matrix has two rows per step, whose elements are paired.
void pack_pairs(const panel_source_t& source, int64_t width, float* panel);

} // namespace zendnn::impl::cpu::x64
