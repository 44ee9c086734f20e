// Packs a plain image into a panel: the columns are points of a convolution's
// result, and the depth is the kernel's input for them, channel by channel
// (im2col). Only one panel of that matrix is in memory.
#pragma once

#include <cstdint>

namespace zendnn::impl::cpu::x64 {

// A convolution's geometry, for an image with contiguous channels.
struct panel_image_t {
  int64_t height, width, out_width;
  int64_t kernel_height, kernel_width;
  int64_t stride_down, stride_across;
  int64_t dilation_down, dilation_across; // between points of the kernel
  int64_t top, left;                      // padding
};

// Whether pack_image accepts it: a kernel with few points, and a stride across
// of 1 or 2.
bool packs_image(const panel_image_t& image);

// A part of that matrix.
struct panel_fields_t {
  const char* first;     // the image's first point
  bool pairs;            // bfloat16: a step is two elements of the depth
  int64_t step, steps;   // of the depth
  int64_t point, points; // at most the width
};

// Writes `panel` as (steps, width) items of 4 bytes, padded with zeros; the
// width is 32, 48 or 64.
void pack_image(
    const panel_image_t& image,
    const panel_fields_t& fields,
    int64_t width,
    float* panel);

} // namespace zendnn::impl::cpu::x64
