// Convolutions of planes: rows are brought in as float32, with their zeros
// around them and columns that a stride takes apart side by side, so that
// whatever the geometry, each point of the kernel reads vectors in order.
#include "depthwise.h"

#include "vec.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

// Floats of the rows that are brought in, on the stack; most of them stay in
// the first-level cache. Then those of one row before it is taken apart.
constexpr int64_t kStrip = 6144, kLongestRow = 4096;
// Points of a kernel.
constexpr int64_t kMostTaps = 128;
// Rows of the result that are made together: as many sums hide how long one
// takes, and leave registers for kernels.
constexpr int kRows = kWidth / 2;

// How rows of the input lie in a strip: for each column that a stride begins
// with, those that are whole strides away.
struct Layout {
  explicit Layout(const DepthwiseArgs& a)
      : reach_down((a.kernel_height - 1) * a.dilation_down + 1),
        reach_across((a.kernel_width - 1) * a.dilation_across + 1),
        columns(round_up(
            round_up(a.out_width, kWidth) +
                (reach_across - 1) / a.stride_across,
            kWidth)),
        row(columns * a.stride_across),
        bands((kStrip / row - reach_down) / a.stride_down + 1) {}

  int64_t reach_down, reach_across; // of a kernel
  int64_t columns;                  // of a part
  int64_t row;                      // floats
  int64_t bands;                    // rows of the result that a strip serves
};

// Every second lane of both, from the first or the second on.
#ifdef __AVX512F__
constexpr VecI kEven{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};
#else
constexpr VecI kEven{0, 2, 4, 6, 8, 10, 12, 14};
#endif

template <class T>
class Depthwise {
 public:
  explicit Depthwise(const DepthwiseArgs& args) : a_(args), layout_(args) {}

  void run(int64_t begin, int64_t end) {
    for (int64_t ky = 0, tap = 0; ky < a_.kernel_height; ++ky) {
      for (int64_t kx = 0; kx < a_.kernel_width; ++kx, ++tap) {
        const int64_t column = kx * a_.dilation_across;
        places_[tap] = ky * a_.dilation_down * layout_.row +
                       column % a_.stride_across * layout_.columns +
                       column / a_.stride_across;
      }
    }
    for (int64_t plane = begin; plane < end; ++plane)
      convolve(plane / a_.filters, plane % a_.filters);
  }

 private:
  int64_t taps() const {
    return a_.kernel_height * a_.kernel_width;
  }

  void convolve(int64_t image, int64_t filter) {
    const T* weight = static_cast<const T*>(a_.weight) + filter * taps();
    for (int64_t i = 0; i < taps(); ++i)
      weights_[i] = load_one(weight + i);
    const T* bias = static_cast<const T*>(a_.bias);
    bias_ = bias ? load_one(bias + filter) : 0;
    const int64_t channel = filter / (a_.filters / a_.channels);
    const T* x = static_cast<const T*>(a_.x) +
                 (image * a_.channels + channel) * a_.height * a_.width;
    T* out = static_cast<T*>(a_.out) +
             (image * a_.filters + filter) * a_.out_height * a_.out_width;
    for (int64_t y = 0; y < a_.out_height; y += layout_.bands) {
      const int64_t rows = min(layout_.bands, a_.out_height - y);
      const int64_t first = y * a_.stride_down - a_.pad_top;
      const int64_t count = (rows - 1) * a_.stride_down + layout_.reach_down;
      for (int64_t i = 0; i < count; ++i)
        bring_in(x, first + i, strip_ + i * layout_.row);
      for (int64_t i = 0; i < rows; i += kRows)
        make_rows<kRows>(i, rows - i, out + (y + i) * a_.out_width);
    }
  }

  void bring_in(const T* x, int64_t y, float* to) {
    if (y < 0 || y >= a_.height) {
      for (int64_t i = 0; i < layout_.row; i += kWidth)
        store(to + i, Vec{});
      return;
    }
    const T* from = x + y * a_.width;
    if (a_.stride_across == 1)
      return surround(from, to);
    surround(from, whole_);
    if (a_.stride_across == 2) {
      for (int64_t i = 0; i < layout_.columns; i += kWidth) {
        const Vec a = load(whole_ + 2 * i), b = load(whole_ + 2 * i + kWidth);
        store(to + i, __builtin_shuffle(a, b, kEven));
        store(to + layout_.columns + i, __builtin_shuffle(a, b, kEven + 1));
      }
      return;
    }
    for (int64_t part = 0; part < a_.stride_across; ++part) {
      for (int64_t i = 0; i < layout_.columns; ++i)
        to[part * layout_.columns + i] = whole_[i * a_.stride_across + part];
    }
  }

  // A row with its zeros around it.
  void surround(const T* from, float* to) {
    const int64_t left = min(a_.pad_left, layout_.row);
    const int64_t count = min(a_.width, layout_.row - left);
    for (int64_t i = 0; i < left; i += kWidth)
      store(to + i, Vec{});
    for (int64_t i = (left + count) / kWidth * kWidth; i < layout_.row;
         i += kWidth)
      store(to + i, Vec{});
    each_vector(count, [&](int64_t i, auto lanes) {
      store(to + left + i, load(from + i, lanes), lanes);
    });
  }

  // So many rows, or as many as are left.
  template <int rows>
  void make_rows(int64_t row, int64_t left, T* out) {
    if constexpr (rows > 1) {
      if (left < rows)
        return make_rows<rows - 1>(row, left, out);
    }
    const float* strip = strip_ + row * a_.stride_down * layout_.row;
    const bool even = a_.stride_down == 1 && a_.dilation_down == 1;
    each_vector(a_.out_width, [&](int64_t column, auto lanes) {
      Vec sums[rows];
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i)
        sums[i] = splat(bias_);
      if (even && a_.kernel_height == 3)
        add_evenly<3>(sums, strip + column);
      else if (even && a_.kernel_height == 5)
        add_evenly<5>(sums, strip + column);
      else if (even && a_.kernel_height == 7)
        add_evenly<7>(sums, strip + column);
      else
        add(sums, strip + column);
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i)
        store(out + i * a_.out_width + column, sums[i], lanes);
    });
  }

  template <int rows>
  void add(Vec (&sums)[rows], const float* from) {
    const int64_t apart = a_.stride_down * layout_.row;
    for (int64_t tap = 0; tap < taps(); ++tap) {
      const Vec weight = splat(weights_[tap]);
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i)
        sums[i] = sums[i] + weight * load(from + places_[tap] + i * apart);
    }
  }

  // The same where rows of the result are as far apart as those of the kernel:
  // each vector is read once for all that meet it.
  template <int height, int rows>
  void add_evenly(Vec (&sums)[rows], const float* from) {
    for (int64_t tap = 0; tap < a_.kernel_width; ++tap) {
      Vec weights[height];
#pragma GCC unroll 8
      for (int i = 0; i < height; ++i)
        weights[i] = splat(weights_[i * a_.kernel_width + tap]);
      const float* place = from + places_[tap];
#pragma GCC unroll 16
      for (int row = 0; row < rows + height - 1; ++row) {
        const Vec x = load(place + row * layout_.row);
#pragma GCC unroll 8
        for (int i = 0; i < height; ++i) {
          if (row - i >= 0 && row - i < rows)
            sums[row - i] = sums[row - i] + weights[i] * x;
        }
      }
    }
  }

  const DepthwiseArgs& a_;
  const Layout layout_;
  float bias_ = 0;
  float weights_[kMostTaps];
  int64_t places_[kMostTaps];
  alignas(64) float strip_[kStrip];
  alignas(64) float whole_[kLongestRow];
};

} // namespace

bool depthwise_takes(const DepthwiseArgs& args) {
  const Layout layout(args);
  return args.kernel_height * args.kernel_width <= kMostTaps &&
         layout.row <= kLongestRow && layout.reach_down * layout.row <= kStrip;
}

void depthwise(const DepthwiseArgs& args) {
  const int64_t work = args.out_height * round_up(args.out_width, kWidth) *
                       args.kernel_height * args.kernel_width;
  with_type(args.dtype, [&]<class T>(T*) {
    parallel(
        args.batch * args.filters,
        1,
        ceil_div(8 * kGrain, max(work, 1)),
        [&](int64_t begin, int64_t end) {
          Depthwise<T>(args).run(begin, end);
        });
  });
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
