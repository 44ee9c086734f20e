// Average pooling of planes, one row at a time.
#include "avg_pool.h"

#include "strip.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

// How much of a window from `first` on lies in [0, end).
template <class Int>
Int overlap(Int first, int32_t size, int32_t end) {
  const Int last = first + size;
  return (last < end ? last : Int{} + end) - (first > 0 ? first : Int{});
}

template <class T>
class AvgPool {
 public:
  explicit AvgPool(const AvgPoolArgs& args)
      : a_(args), w_(args.windows), strip_(w_, 0) {
    for (int i = 0; i < kWidth; ++i)
      lanes_[i] = i;
  }

  // Computes rows of a plane from row y of the result on.
  void run(int64_t plane, int64_t y) {
    const T* x = static_cast<const T*>(a_.x) + plane * w_.height * w_.width;
    T* out = static_cast<T*>(a_.out) + plane * w_.out_height * w_.out_width;
    const int64_t rows = min(strip_.rows(), w_.out_height - y);
    strip_.fill(x, y, rows);
    for (int64_t i = 0; i < rows; ++i)
      make_row(y + i, i, out + (y + i) * w_.out_width);
  }

 private:
  void make_row(int64_t y, int64_t row, T* out) const {
    const int64_t taps = w_.kernel_height * w_.kernel_width;
    const int32_t high = overlap(
        static_cast<int32_t>(y * w_.stride_down - w_.pad_top),
        static_cast<int32_t>(w_.kernel_height),
        static_cast<int32_t>(w_.height));
    each_vector(w_.out_width, [&](int64_t column, auto lanes) {
      Vec sum = load(strip_.at(row, 0) + column);
      for (int64_t tap = 1; tap < taps; ++tap)
        sum = sum + load(strip_.at(row, tap) + column);
      Vec counted = splat(static_cast<float>(taps));
      if (!a_.counts_padding) {
        const VecI left = (lanes_ + static_cast<int32_t>(column)) *
                              static_cast<int32_t>(w_.stride_across) -
                          static_cast<int32_t>(w_.pad_left);
        counted = to_float(
            overlap(
                left,
                static_cast<int32_t>(w_.kernel_width),
                static_cast<int32_t>(w_.width)) *
            high);
      }
      store(out + column, sum / counted, lanes);
    });
  }

  const AvgPoolArgs& a_;
  const Windows& w_;
  VecI lanes_{};
  Strip strip_;
};

} // namespace

void avg_pool(const AvgPoolArgs& args) {
  const Windows& w = args.windows;
  with_type<float, BFloat16>(args.dtype, [&]<class T>(T*) {
    each_strip(
        w,
        args.planes,
        w.kernel_height * w.kernel_width,
        [&] { return AvgPool<T>(args); },
        [](AvgPool<T>& planes, int64_t plane, int64_t y) {
          planes.run(plane, y);
        });
  });
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
