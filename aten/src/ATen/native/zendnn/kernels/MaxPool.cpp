// Max pooling of planes, one row at a time.
#include "max_pool.h"

#include "strip.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

template <class T>
class MaxPool {
 public:
  explicit MaxPool(const MaxPoolArgs& args)
      : a_(args), w_(args.windows), strip_(w_, -__builtin_inff()) {
    for (int64_t ky = 0, tap = 0; ky < w_.kernel_height; ++ky) {
      for (int64_t kx = 0; kx < w_.kernel_width; ++kx, ++tap)
        away_[tap] = static_cast<int32_t>(
            ky * w_.dilation_down * w_.width + kx * w_.dilation_across);
    }
    for (int i = 0; i < kWidth; ++i)
      lanes_[i] = i;
  }

  // Computes rows of a plane from row y of the result on.
  void run(int64_t plane, int64_t y) {
    const T* x = static_cast<const T*>(a_.x) + plane * w_.height * w_.width;
    const int64_t first = plane * w_.out_height * w_.out_width;
    const int64_t rows = min(strip_.rows(), w_.out_height - y);
    strip_.fill(x, y, rows);
    for (int64_t i = 0; i < rows; ++i)
      make_row(y + i, i, first + (y + i) * w_.out_width);
  }

 private:
  void make_row(int64_t y, int64_t row, int64_t place) const {
    const auto top = static_cast<int32_t>(y * w_.stride_down - w_.pad_top);
    const auto width = static_cast<int32_t>(w_.width);
    const auto stride = static_cast<int32_t>(w_.stride_across);
    const int64_t taps = w_.kernel_height * w_.kernel_width;
    T* out = static_cast<T*>(a_.out) + place;
    if (a_.indices == nullptr) {
      each_vector(w_.out_width, [&](int64_t column, auto lanes) {
        Vec most = splat(-__builtin_inff());
        for (int64_t tap = 0; tap < taps; ++tap)
          most = max_or_nan(most, load(strip_.at(row, tap) + column));
        store(out + column, most, lanes);
      });
      return;
    }
    int64_t* indices = a_.indices + place;
    each_vector(w_.out_width, [&](int64_t column, auto lanes) {
      const VecI left = (lanes_ + static_cast<int32_t>(column)) * stride -
                        static_cast<int32_t>(w_.pad_left);
      // The window's first place within the image, in case of only -∞.
      VecI where = (left > 0 ? left : 0) + (top > 0 ? top : 0) * width;
      Vec most = splat(-__builtin_inff());
      for (int64_t tap = 0; tap < taps; ++tap) {
        const Vec x = load(strip_.at(row, tap) + column);
        const VecI larger = (x > most) | (x != x);
        most = larger ? x : most;
        where = larger ? left + (top * width + away_[tap]) : where;
      }
      store(out + column, most, lanes);
      int32_t wheres[kWidth];
      store_bits(reinterpret_cast<uint32_t*>(wheres), where, Full{});
      const int count = lanes_of(lanes);
      for (int i = 0; i < count; ++i)
        indices[column + i] = wheres[i];
    });
  }

  static int lanes_of(Full) {
    return kWidth;
  }
  static int lanes_of(Tail tail) {
    return tail.count;
  }

  const MaxPoolArgs& a_;
  const Windows& w_;
  VecI lanes_{};
  int32_t
      away_[Strip::kMostTaps]; // offsets from a window's corner in the image
  Strip strip_;
};

} // namespace

void max_pool(const MaxPoolArgs& args) {
  const Windows& w = args.windows;
  with_type<float, BFloat16>(args.dtype, [&]<class T>(T*) {
    each_strip(
        w,
        args.planes,
        2 * w.kernel_height * w.kernel_width,
        [&] { return MaxPool<T>(args); },
        [](MaxPool<T>& planes, int64_t plane, int64_t y) {
          planes.run(plane, y);
        });
  });
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
