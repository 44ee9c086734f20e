// Dot products with weights in contiguous columns, without packing: for
// panel_product.h, when too few rows share a panel.
#pragma once

#include <cstdint>

namespace zendnn::impl::cpu::x64 {

// The maximum rows of a tile, and its columns.
constexpr int64_t kDotRows = 6, kDotColumns = 4;

// Steps of the depth are items of 4 bytes: floats, or pairs of bfloat16.
struct panel_dot_t {
  const char* src;
  int64_t src_stride; // bytes from row to row
  int64_t rows;
  const char* weights;
  int64_t weights_stride; // bytes from column to column
  int64_t columns;
  int64_t steps;
};

// Writes the products of rows and columns as (rows, width) floats. Columns are
// padded to whole tiles; the width has room for that. Pairs require
// AVX512-BF16.
void dot_panel(
    const panel_dot_t& problem,
    bool pairs,
    int64_t width,
    float* sums);

} // namespace zendnn::impl::cpu::x64
