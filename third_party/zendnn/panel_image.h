// Making a panel of a plain image: the columns are points of a convolution's
// result, the depth is what the kernel reads for them, channel by channel
// (im2col). No more of that matrix is in memory than one panel.
#pragma once

#include <cstdint>

namespace zendnn::impl::cpu::x64 {

// Of an image whose channels lie one after the other, each without gaps.
struct panel_image_t {
  int64_t height, width, out_width;
  int64_t kernel_height, kernel_width;
  int64_t stride_down, stride_across;
  int64_t dilation_down, dilation_across; // from point to point of the kernel
  int64_t top, left;                      // padding
};

// Whether pack_image does it: kernels of not too many points, columns of the
// image that follow each other or every second one.
bool packs_image(const panel_image_t& image);

// Part of that matrix.
struct panel_fields_t {
  const char* first;     // the image's first point
  bool pairs;            // bfloat16, where a step is two of the depth
  int64_t step, steps;   // of the depth
  int64_t point, points; // at most the width
};

// Writes `panel` as (steps, width) items of 4 bytes, with zeros beyond the
// points; the width is 32, 48 or 64.
void pack_image(
    const panel_image_t& image,
    const panel_fields_t& fields,
    int64_t width,
    float* panel);

} // namespace zendnn::impl::cpu::x64
