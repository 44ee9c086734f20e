// Rows of a plane as float32, with padding, and with the columns that a stride
// separates stored contiguously: each point of a kernel then reads contiguous
// vectors, for any geometry.
#pragma once

#include "windows.h"

#include "vec.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

// The layout of rows in a strip.
struct StripLayout {
  // The size of a strip on the stack, mostly in the L1 cache.
  static constexpr int64_t kFloats = 6144;

  explicit StripLayout(const Windows& w)
      : reach((w.kernel_height - 1) * w.dilation_down + 1),
        columns(round_up(
            round_up(w.out_width, kWidth) +
                (w.kernel_width - 1) * w.dilation_across / w.stride_across,
            kWidth)),
        row(columns * w.stride_across),
        step(w.stride_down * row),
        stride_down(w.stride_down) {}

  int64_t reach;   // rows from the first to the last of a window
  int64_t columns; // of a part of a row: those whole strides apart
  int64_t row;     // floats
  // Floats from the input of one row of the result to that of the next.
  int64_t step;
  int64_t stride_down;

  // The rows of the result that fit a strip.
  int64_t rows() const {
    return (kFloats / row - reach) / stride_down + 1;
  }
};

class Strip {
 public:
  // Points of a kernel.
  static constexpr int64_t kMostTaps = 128;

  // Whether the input of one row of the result fits.
  static bool fits(const Windows& w) {
    // Numbers larger than a strip could overflow in its layout.
    const int64_t numbers[]{
        w.out_width,
        w.kernel_height,
        w.kernel_width,
        w.stride_down,
        w.stride_across,
        w.dilation_down,
        w.dilation_across};
    for (const int64_t number : numbers) {
      if (number < 1 || number > kFloats)
        return false;
    }
    const StripLayout layout(w);
    return w.kernel_height * w.kernel_width <= kMostTaps &&
           layout.row <= kLongestRow && layout.reach * layout.row <= kFloats;
  }

  // The windows must fit, and outlive the strip.
  Strip(const Windows& windows, float around)
      : w_(windows), around_(splat(around)), layout_(windows) {
    for (int64_t ky = 0, tap = 0; ky < w_.kernel_height; ++ky) {
      for (int64_t kx = 0; kx < w_.kernel_width; ++kx, ++tap) {
        const int64_t column = kx * w_.dilation_across;
        places_[tap] = ky * w_.dilation_down * layout_.row +
                       column % w_.stride_across * layout_.columns +
                       column / w_.stride_across;
      }
    }
  }

  int64_t rows() const {
    return layout_.rows();
  }
  int64_t step() const {
    return layout_.step;
  }

  // Loads the input of `rows` rows of the result, from row y on.
  template <class T>
  void fill(const T* plane, int64_t y, int64_t rows) {
    const int64_t first = y * w_.stride_down - w_.pad_top;
    const int64_t count = (rows - 1) * w_.stride_down + layout_.reach;
    const int64_t row = layout_.row;
    if (w_.stride_across == 1) {
      for (int64_t i = 0; i < count; ++i)
        bring_in(plane, first + i, floats_ + i * row);
      return;
    }
    // Many rows at a time: to load what has just been stored takes long.
    const int64_t many = kLongestRow / row;
    for (int64_t i = 0; i < count; i += many) {
      const int64_t end = min(i + many, count);
      for (int64_t k = i; k < end; ++k)
        bring_in(plane, first + k, whole_ + (k - i) * row);
      for (int64_t k = i; k < end; ++k)
        separate(whole_ + (k - i) * row, floats_ + k * row);
    }
  }

  // The input of row `row` of those, first column, at a point of the kernel.
  const float* at(int64_t row, int64_t tap) const {
    return floats_ + row * step() + places_[tap];
  }

 private:
  static constexpr int64_t kFloats = StripLayout::kFloats;
  // The maximum length of a row before its columns are separated.
  static constexpr int64_t kLongestRow = 4096;

  template <class T>
  void bring_in(const T* plane, int64_t y, float* to) {
    if (y < 0 || y >= w_.height) {
      for (int64_t i = 0; i < layout_.row; i += kWidth)
        store(to + i, around_);
      return;
    }
    surround(plane + y * w_.width, to);
  }

  // Stores the columns that the stride separates contiguously.
  void separate(const float* whole, float* to) const {
    if (w_.stride_across == 2) {
      for (int64_t i = 0; i < layout_.columns; i += kWidth) {
        const Vec a = load(whole + 2 * i), b = load(whole + 2 * i + kWidth);
        store(to + i, even_lanes(a, b));
        store(to + layout_.columns + i, odd_lanes(a, b));
      }
      return;
    }
    for (int64_t part = 0; part < w_.stride_across; ++part) {
      for (int64_t i = 0; i < layout_.columns; ++i)
        to[part * layout_.columns + i] = whole[i * w_.stride_across + part];
    }
  }

  template <class T>
  void surround(const T* from, float* to) {
    const int64_t left = min(w_.pad_left, layout_.row);
    const int64_t count = min(w_.width, layout_.row - left);
    for (int64_t i = 0; i < left; i += kWidth)
      store(to + i, around_);
    for (int64_t i = (left + count) / kWidth * kWidth; i < layout_.row;
         i += kWidth)
      store(to + i, around_);
    each_vector(count, [&](int64_t i, auto lanes) {
      store(to + left + i, load(from + i, lanes), lanes);
    });
  }

  const Windows& w_;
  const Vec around_;
  const StripLayout layout_;
  int64_t places_[kMostTaps];
  alignas(64) float floats_[kFloats];
  alignas(64) float whole_[kLongestRow];
};

// Calls run(worker, plane, y) for each strip of each plane, where y is its
// first row of the result, and make() for the worker of each thread;
// `operations` are per element of the result.
template <class Make, class Run>
void each_strip(
    const Windows& windows,
    int64_t planes,
    int64_t operations,
    Make make,
    Run run) {
  const int64_t rows =
      max(1, min(StripLayout(windows).rows(), windows.out_height));
  const int64_t strips = ceil_div(windows.out_height, rows);
  const int64_t work = rows * round_up(windows.out_width, kWidth) * operations;
  parallel(
      planes * strips,
      1,
      ceil_div(8 * kGrain, work),
      [&](int64_t begin, int64_t end) {
        auto worker = make();
        for (int64_t i = begin; i < end; ++i)
          run(worker, i / strips, i % strips * rows);
      });
}

} // namespace
} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
