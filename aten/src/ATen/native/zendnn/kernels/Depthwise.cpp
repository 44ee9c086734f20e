// Depthwise convolutions, a few rows at a time.
#include "depthwise.h"

#include "strip.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

// Rows of the result per step: as many sums hide their latency, and leave
// registers for kernels.
constexpr int kRows = kWidth / 2;

template <class T>
class Depthwise {
 public:
  explicit Depthwise(const DepthwiseArgs& args)
      : a_(args), w_(args.windows), strip_(args.windows, 0) {}

  // Computes rows of a plane from row y of the result on.
  void run(int64_t image, int64_t filter, int64_t y) {
    const T* weight = static_cast<const T*>(a_.weight) + filter * taps();
    for (int64_t i = 0; i < taps(); ++i)
      weights_[i] = load_one(weight + i);
    const T* bias = static_cast<const T*>(a_.bias);
    bias_ = bias ? load_one(bias + filter) : 0;
    const int64_t channel = filter / (a_.filters / a_.channels);
    const T* x = static_cast<const T*>(a_.x) +
                 (image * a_.channels + channel) * w_.height * w_.width;
    T* out = static_cast<T*>(a_.out) +
             (image * a_.filters + filter) * w_.out_height * w_.out_width;
    const int64_t rows = min(strip_.rows(), w_.out_height - y);
    strip_.fill(x, y, rows);
    for (int64_t i = 0; i < rows; i += kRows)
      make_rows<kRows>(i, rows - i, out + (y + i) * w_.out_width);
  }

 private:
  int64_t taps() const {
    return w_.kernel_height * w_.kernel_width;
  }

  // Computes `rows` rows, or as many as are left.
  template <int rows>
  void make_rows(int64_t row, int64_t left, T* out) {
    if constexpr (rows > 1) {
      if (left < rows)
        return make_rows<rows - 1>(row, left, out);
    }
    const bool even = w_.stride_down == 1 && w_.dilation_down == 1;
    each_vector(w_.out_width, [&](int64_t column, auto lanes) {
      Vec sums[rows];
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i)
        sums[i] = splat(bias_);
      if (even && w_.kernel_height == 3)
        add_evenly<3>(sums, row, column);
      else if (even && w_.kernel_height == 5)
        add_evenly<5>(sums, row, column);
      else if (even && w_.kernel_height == 7)
        add_evenly<7>(sums, row, column);
      else
        add(sums, row, column);
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i)
        store(out + i * w_.out_width + column, sums[i], lanes);
    });
  }

  template <int rows>
  void add(Vec (&sums)[rows], int64_t row, int64_t column) const {
    for (int64_t tap = 0; tap < taps(); ++tap) {
      const Vec weight = splat(weights_[tap]);
      const float* from = strip_.at(row, tap) + column;
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i)
        sums[i] = sums[i] + weight * load(from + i * strip_.step());
    }
  }

  // For equal spacing of rows in the result and in the kernel: each vector is
  // read once for all its uses.
  template <int height, int rows>
  void add_evenly(Vec (&sums)[rows], int64_t row, int64_t column) const {
    for (int64_t tap = 0; tap < w_.kernel_width; ++tap) {
      Vec weights[height];
#pragma GCC unroll 8
      for (int i = 0; i < height; ++i)
        weights[i] = splat(weights_[i * w_.kernel_width + tap]);
      const float* from = strip_.at(row, tap) + column;
#pragma GCC unroll 16
      for (int k = 0; k < rows + height - 1; ++k) {
        const Vec x = load(from + k * strip_.step());
#pragma GCC unroll 8
        for (int i = 0; i < height; ++i) {
          if (k - i >= 0 && k - i < rows)
            sums[k - i] = sums[k - i] + weights[i] * x;
        }
      }
    }
  }

  const DepthwiseArgs& a_;
  const Windows& w_;
  float bias_ = 0;
  float weights_[Strip::kMostTaps];
  Strip strip_;
};

template <class T>
bool all_finite(const T* from, int64_t size) {
  return sum_of(size, [&](int64_t i, auto lanes) {
           return load(from + i, lanes) * 0.0f;
         }) == 0;
}

} // namespace

bool depthwise(const DepthwiseArgs& args) {
  const Windows& w = args.windows;
  return with_type<float, BFloat16>(args.dtype, [&]<class T>(T*) {
    if ((w.pad_top > 0 || w.pad_left > 0) &&
        !all_finite(
            static_cast<const T*>(args.weight),
            args.filters * w.kernel_height * w.kernel_width))
      return false;
    each_strip(
        w,
        args.batch * args.filters,
        w.kernel_height * w.kernel_width,
        [&] { return Depthwise<T>(args); },
        [&](Depthwise<T>& planes, int64_t plane, int64_t y) {
          planes.run(plane / args.filters, plane % args.filters, y);
        });
    return true;
  });
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
