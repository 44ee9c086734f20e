// Normalisation of groups of channels. Each pass reads the group again from the
// cache, so that all sums are of well-scaled numbers.
#include "group_norm.h"

#include "reduction.h"
#include "vec.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

// A group is a matrix: its rows are channels, or the group's part of pixels.
template <class T, class W>
class Group {
 public:
  Group(const GroupNormArgs& args, int64_t batch, int64_t group)
      : args_(args),
        rows_(args.channels_last ? args.pixels : args.channels),
        cols_(args.channels_last ? args.channels : args.pixels),
        channel_(group * args.channels) {
    const int64_t first_x = args.channels_last ? 1 : args.x_stride;
    const int64_t first_out = args.channels_last ? 1 : args.out_stride;
    x_ = static_cast<const T*>(args.x) + batch * args.x_batch_stride +
         channel_ * first_x;
    out_ = static_cast<T*>(args.out) + batch * args.out_batch_stride +
           channel_ * first_out;
  }

  void run() const {
    const float count = static_cast<float>(rows_ * cols_);
    const Vec mean = splat(mean_of(x_, rows_, cols_, args_.x_stride));
    const float squares =
        sum_of_rows(rows_, cols_, [&](int64_t row, int64_t i, auto lanes) {
          const Vec d = load(x_ + row * args_.x_stride + i, lanes) - mean;
          return d * d;
        });
    const float factor = 1 / __builtin_sqrtf(squares / count + args_.eps);
    for (int64_t row = 0; row < rows_; ++row) {
      const T* x = x_ + row * args_.x_stride;
      T* out = out_ + row * args_.out_stride;
      if (args_.channels_last) {
        each_vector(cols_, [&](int64_t i, auto lanes) {
          Vec y = (load(x + i, lanes) - mean) * factor;
          if (args_.weight)
            y = y * load(weight() + i, lanes);
          if (args_.bias)
            y = y + load(bias() + i, lanes);
          store(out + i, y, lanes);
        });
      } else {
        const float scale =
            args_.weight ? factor * load_one(weight() + row) : factor;
        const float shift = args_.bias ? load_one(bias() + row) : 0;
        each_vector(cols_, [&](int64_t i, auto lanes) {
          store(out + i, (load(x + i, lanes) - mean) * scale + shift, lanes);
        });
      }
    }
  }

 private:
  const W* weight() const {
    return static_cast<const W*>(args_.weight) + channel_;
  }
  const W* bias() const {
    return static_cast<const W*>(args_.bias) + channel_;
  }

  const GroupNormArgs& args_;
  int64_t rows_, cols_, channel_;
  const T* x_;
  T* out_;
};

} // namespace

void group_norm(const GroupNormArgs& args) {
  with_type<float, BFloat16>(args.dtype, [&]<class T>(T*) {
    with_type<float, BFloat16>(args.weight_dtype, [&]<class W>(W*) {
      const int64_t grain =
          ceil_div(kGrain, max(args.channels * args.pixels, 1));
      parallel(
          args.batch * args.groups, 1, grain, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i)
              Group<T, W>(args, i / args.groups, i % args.groups).run();
          });
    });
  });
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
