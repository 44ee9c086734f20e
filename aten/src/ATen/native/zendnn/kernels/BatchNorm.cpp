// Normalisation of channels by known statistics: a factor and a summand per
// channel, which memory bandwidth limits.
#include "batch_norm.h"

#include "vec.h"
#include "vecmath.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

// Channels whose factors are buffered on the stack.
constexpr int64_t kChunk = 512;

template <class T, class W, bool relu>
class Norm {
 public:
  explicit Norm(const BatchNormArgs& args) : args_(args) {}

  void run() const {
    switch (args_.layout) {
      case ChannelLayout::planes:
        return each(
            args_.batch * args_.channels,
            args_.pixels,
            [&](int64_t begin, int64_t end) { normalise_planes(begin, end); });
      case ChannelLayout::last:
        return normalise_rows();
      case ChannelLayout::blocks:
        return each(
            args_.batch * blocks(),
            args_.pixels * kWidth,
            [&](int64_t begin, int64_t end) {
              for (int64_t i = begin; i < end; ++i)
                normalise_block(i);
            });
    }
  }

 private:
  // The factors and summands of channels.
  struct Affine {
    Vec scale, shift;

    Vec operator()(Vec x) const {
      const Vec y = x * scale + shift;
      return relu ? max(Vec{}, y) : y;
    }
  };

  template <class Lanes>
  Affine affine(int64_t channel, Lanes lanes) const {
    const auto of = [&](const void* factors) {
      return load(static_cast<const W*>(factors) + channel, lanes);
    };
    Vec scale = splat(1) / sqrt(of(args_.variance) + args_.eps);
    if (args_.weight)
      scale = scale * of(args_.weight);
    const Vec moved = of(args_.mean) * scale;
    return {scale, (args_.bias ? of(args_.bias) : Vec{}) - moved};
  }

  int64_t blocks() const {
    return ceil_div(args_.channels, kWidth);
  }
  const T* x(int64_t batch, int64_t step) const {
    return static_cast<const T*>(args_.x) + batch * args_.x_batch_stride +
           step * args_.x_stride;
  }
  T* out(int64_t batch, int64_t step) const {
    return static_cast<T*>(args_.out) + batch * args_.out_batch_stride +
           step * args_.out_stride;
  }

  template <class F>
  void each(int64_t count, int64_t size, F normalise) const {
    const int64_t grain = ceil_div(kGrain, max(size, 1));
    parallel(count, 1, grain, normalise);
  }

  // Computes factors for a vector of channels at a time.
  void normalise_planes(int64_t begin, int64_t end) const {
    float scale[kWidth] = {}, shift[kWidth] = {};
    for (int64_t i = begin; i < end; ++i) {
      const int64_t batch = i / args_.channels, channel = i % args_.channels;
      const int64_t lane = channel % kWidth, first = channel - lane;
      if (i == begin || lane == 0) {
        const auto prepare = [&](auto lanes) {
          const Affine of = affine(first, lanes);
          store(scale, of.scale);
          store(shift, of.shift);
        };
        if (args_.channels - first < kWidth)
          prepare(Tail(args_.channels - first));
        else
          prepare(Full{});
      }
      const Affine same{splat(scale[lane]), splat(shift[lane])};
      const T* from = x(batch, channel);
      T* to = out(batch, channel);
      each_vector(args_.pixels, [&](int64_t p, auto lanes) {
        store(to + p, same(load(from + p, lanes)), lanes);
      });
    }
  }

  void normalise_block(int64_t i) const {
    const int64_t batch = i / blocks(), block = i % blocks();
    const int64_t channel = block * kWidth;
    const T* from = x(batch, block);
    T* to = out(batch, block);
    const auto go = [&](auto lanes) {
      const Affine of = affine(channel, lanes);
      for (int64_t p = 0; p < args_.pixels * kWidth; p += kWidth)
        store(to + p, keep(of(load(from + p, Full{})), lanes, Vec{}), Full{});
    };
    if (const int64_t left = args_.channels - channel; left < kWidth)
      go(Tail(left));
    else
      go(Full{});
  }

  void normalise_rows() const {
    const int64_t grain = ceil_div(kGrain, max(args_.channels, 1));
    parallel(
        args_.batch * args_.pixels, 1, grain, [&](int64_t begin, int64_t end) {
          for (int64_t channel = 0; channel < args_.channels; channel += kChunk)
            normalise_columns(
                begin, end, channel, min(args_.channels - channel, kChunk));
        });
  }

  void normalise_columns(
      int64_t begin,
      int64_t end,
      int64_t channel,
      int64_t count) const {
    Affine affines[kChunk / kWidth];
    each_vector(count, [&](int64_t i, auto lanes) {
      affines[i / kWidth] = affine(channel + i, lanes);
    });
    while (begin < end) {
      const int64_t batch = begin / args_.pixels;
      const int64_t first = begin - batch * args_.pixels;
      const int64_t rows = min(end - begin, args_.pixels - first);
      for (int64_t row = first; row < first + rows; ++row) {
        const T* from = x(batch, row) + channel;
        T* to = out(batch, row) + channel;
        each_vector(count, [&](int64_t i, auto lanes) {
          store(to + i, affines[i / kWidth](load(from + i, lanes)), lanes);
        });
      }
      begin += rows;
    }
  }

  const BatchNormArgs& args_;
};

} // namespace

void batch_norm(const BatchNormArgs& args) {
  with_type<float, BFloat16>(args.dtype, [&]<class T>(T*) {
    with_type<float, BFloat16>(args.weight_dtype, [&]<class W>(W*) {
      if (args.relu)
        Norm<T, W, true>(args).run();
      else
        Norm<T, W, false>(args).run();
    });
  });
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
