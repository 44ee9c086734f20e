// Making a panel of plain weights, for panel_product.h.
#pragma once

#include <cstdint>

namespace zendnn::impl::cpu::x64 {

// Part of a matrix of 4-byte items: floats, or pairs of bfloat16 that follow
// each other down the depth.
struct panel_source_t {
  const char* first; // the item at depth 0 and column 0
  int64_t stride;    // bytes from row to row
  int64_t depth;     // in items
  int64_t columns;   // at most the width
};

// Each writes `panel` as (depth, width) items, with zeros beyond the columns;
// the width is a multiple of 16. The matrix has a row of contiguous items for
// each column;
void pack_columns(const panel_source_t& source, int64_t width, float* panel);
// for each step of the depth;
void pack_rows(const panel_source_t& source, int64_t width, float* panel);
// or two rows for each step, whose items are paired.
void pack_pairs(const panel_source_t& source, int64_t width, float* panel);

} // namespace zendnn::impl::cpu::x64
