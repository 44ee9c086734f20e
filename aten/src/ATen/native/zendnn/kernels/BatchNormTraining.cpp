// Normalisation of channels by their own statistics, and its gradients. Each
// pass reads planes again from the cache, so that all sums are of well-scaled
// numbers. Rows of channels are read in blocks, whose statistics are merged
// (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for
// computing sample variances", 1979).
#include "batch_norm.h"

#include "reduction.h"
#include "vec.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

// Two sums that are computed together.
struct Pair {
  Vec first{}, second{};
};
inline Pair operator+(Pair a, Pair b) {
  return {a.first + b.first, a.second + b.second};
}
template <class Lanes>
Pair keep(Pair x, Lanes lanes, Pair y) {
  return {keep(x.first, lanes, y.first), keep(x.second, lanes, y.second)};
}

template <class Args>
double count(const Args& args) {
  return static_cast<double>(args.batch * args.pixels);
}

// A channel's mean, and sum of squared differences from it.
struct Statistics {
  double mean, squares;
};

// Stores a channel's statistics, and updates the running ones.
void keep_statistics(
    const BatchNormTrainingArgs& args,
    int64_t channel,
    Statistics of) {
  const double variance = of.squares / count(args) + args.eps;
  args.mean[channel] = static_cast<float>(of.mean);
  args.rstd[channel] =
      static_cast<float>(variance == 0 ? 0 : 1 / __builtin_sqrt(variance));
  const auto follow = [&](float* running, double now) {
    if (running)
      running[channel] = static_cast<float>(
          args.momentum * now + (1 - args.momentum) * running[channel]);
  };
  follow(args.running_mean, of.mean);
  follow(args.running_variance, of.squares / (count(args) - 1));
}

// Maps elements of a channel, or of a vector of channels, to results.
template <class Number>
struct Affine {
  Number mean, scale, shift;

  Vec operator()(Vec x) const {
    return (x - mean) * scale + shift;
  }
};

// Sums of a channel's gradients, alone and times x - mean.
struct Sums {
  double alone, product;
};

// The gradient of x through a channel's mean, and through its variance.
struct Ways {
  float by_mean, by_variance;
};

Ways keep_gradients(
    const BatchNormBackwardArgs& args,
    int64_t channel,
    Sums of) {
  const float rstd = args.rstd[channel];
  if (args.grad_weight)
    args.grad_weight[channel] = static_cast<float>(of.product * rstd);
  if (args.grad_bias)
    args.grad_bias[channel] = static_cast<float>(of.alone);
  if (!args.own)
    return {0, 0};
  return {
      static_cast<float>(of.alone / count(args)),
      static_cast<float>(of.product / count(args) * rstd * rstd)};
}

// Maps the gradient of the result to that of x.
template <class Number>
struct Gradient {
  bool own;
  Number mean, scale, by_mean, by_variance;

  Vec operator()(Vec grad, Vec x) const {
    return (own ? grad - by_mean - (x - mean) * by_variance : grad) * scale;
  }
};

// A channel's planes, one in each image.
class Planes {
 public:
  template <class Args>
  Planes(const Args& args, int64_t channel)
      : images_(args.batch),
        pixels_(args.pixels),
        stride_(args.channels * args.pixels),
        first_(channel * args.pixels) {}

  template <class T>
  float mean(const T* x) const {
    return mean_of(x + first_, images_, pixels_, stride_);
  }
  // Sums value(place, lanes), as sum_runs() does.
  template <class V, class Value, class Take>
  void sum(V zero, Value value, Take take) const {
    sum_runs(
        images_,
        pixels_,
        zero,
        [&](int64_t image, int64_t i, auto lanes) {
          return value(first_ + image * stride_ + i, lanes);
        },
        take);
  }
  // Calls f(place, lanes) for each vector.
  template <class F>
  void each(F f) const {
    for (int64_t image = 0; image < images_; ++image)
      each_vector(pixels_, [&](int64_t i, auto lanes) {
        f(first_ + image * stride_ + i, lanes);
      });
  }

 private:
  int64_t images_, pixels_, stride_, first_;
};

template <class Args, class F>
void each_channel(const Args& args, F f) {
  const int64_t grain = ceil_div(kGrain, args.batch * args.pixels);
  parallel(args.channels, 1, grain, [&](int64_t begin, int64_t end) {
    for (int64_t channel = begin; channel < end; ++channel)
      f(channel);
  });
}

template <class Args>
float scale_of(const Args& args, int64_t channel) {
  return args.rstd[channel] * (args.weight ? args.weight[channel] : 1);
}

template <class T>
void normalise_planes(const BatchNormTrainingArgs& args) {
  const T* x = static_cast<const T*>(args.x);
  T* out = static_cast<T*>(args.out);
  each_channel(args, [&](int64_t channel) {
    const Planes planes(args, channel);
    const float mean = planes.mean(x);
    double squares = 0;
    planes.sum(
        Vec{},
        [&](int64_t i, auto lanes) {
          const Vec d = load(x + i, lanes) - mean;
          return d * d;
        },
        [&](Vec part) { squares += sum_lanes(part); });
    keep_statistics(args, channel, {mean, squares});
    const Affine<float> affine{
        mean, scale_of(args, channel), args.bias ? args.bias[channel] : 0};
    planes.each([&](int64_t i, auto lanes) {
      store(out + i, affine(load(x + i, lanes)), lanes);
    });
  });
}

template <class T>
void differentiate_planes(const BatchNormBackwardArgs& args) {
  const T* grad = static_cast<const T*>(args.grad_out);
  const T* x = static_cast<const T*>(args.x);
  T* grad_x = static_cast<T*>(args.grad_x);
  each_channel(args, [&](int64_t channel) {
    const Planes planes(args, channel);
    const float mean = args.mean[channel];
    Sums sums{0, 0};
    planes.sum(
        Pair{},
        [&](int64_t i, auto lanes) {
          const Vec g = load(grad + i, lanes);
          return Pair{g, g * (load(x + i, lanes) - mean)};
        },
        [&](Pair part) {
          sums.alone += sum_lanes(part.first);
          sums.product += sum_lanes(part.second);
        });
    const auto ways = keep_gradients(args, channel, sums);
    if (!grad_x)
      return;
    const Gradient<float> gradient{
        args.own,
        mean,
        scale_of(args, channel),
        ways.by_mean,
        ways.by_variance};
    planes.each([&](int64_t i, auto lanes) {
      const Vec y = gradient(load(grad + i, lanes), load(x + i, lanes));
      store(grad_x + i, y, lanes);
    });
  });
}

// Channels whose sums are buffered on the stack.
constexpr int64_t kTile = kBatchNormTile;

// Pixels as rows of channels: (rows, channels), in chunks of rows whose sums
// are in scratch. The chunks do not depend on the number of threads.
class Rows {
 public:
  template <class Args>
  explicit Rows(const Args& args)
      : rows_(args.batch * args.pixels),
        channels_(args.channels),
        chunks_(batch_norm_chunks(rows_, channels_)),
        scratch_(args.scratch) {}

  // Two numbers per channel.
  struct Part {
    double *first, *second;
  };
  Part part(int64_t chunk) const {
    double* first = scratch_ + 2 * chunk * channels_;
    return {first, first + channels_};
  }
  int64_t chunks() const {
    return chunks_;
  }
  int64_t first_row(int64_t chunk) const {
    return rows_ * chunk / chunks_;
  }

  // A few rows of up to kTile channels.
  struct Block {
    int64_t channel, channels;
    int64_t row, rows, stride;
    int64_t before; // rows of the chunk before this block

    // Calls f(place, channel of the block, lanes) for each vector.
    template <class F>
    void each(F f) const {
      for (int64_t i = row; i < row + rows; ++i)
        each_vector(channels, [&](int64_t j, auto lanes) {
          f(i * stride + channel + j, j, lanes);
        });
    }
  };
  // Calls f(part, block) for all blocks of a chunk in order; `part` starts at
  // the block's first channel, and is initially zero.
  template <class F>
  void each_block(F f) const {
    constexpr int64_t most = 64; // rows that float sums may cover
    const int64_t tiles = ceil_div(channels_, kTile);
    parallel(chunks_ * tiles, 1, 1, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t chunk = item / tiles, channel = item % tiles * kTile;
        const int64_t top = first_row(chunk), last = first_row(chunk + 1);
        const int64_t channels = min(channels_ - channel, kTile);
        const Part sums = part(chunk);
        const Part here{sums.first + channel, sums.second + channel};
        for (int64_t i = 0; i < channels; ++i)
          here.first[i] = here.second[i] = 0;
        for (int64_t row = top; row < last; row += most)
          f(here,
            Block{
                channel,
                channels,
                row,
                min(most, last - row),
                channels_,
                row - top});
      }
    });
  }
  // Calls f(begin, end) for ranges of channels.
  template <class F>
  void each_range(F f) const {
    parallel(channels_, kWidth, ceil_div(kGrain / 16, chunks_), f);
  }
  // Calls f(place, lanes, of) for all vectors, where `of` is the result of
  // make(channel, lanes).
  template <class Make, class F>
  void each(Make make, F f) const {
    using Value = decltype(make(int64_t{}, Full{}));
    const int64_t grain = ceil_div(kGrain, channels_);
    parallel(rows_, 1, grain, [&](int64_t begin, int64_t end) {
      for (int64_t channel = 0; channel < channels_; channel += kTile) {
        Value values[kTile / kWidth];
        const Block block{
            channel,
            min(channels_ - channel, kTile),
            begin,
            end - begin,
            channels_,
            0};
        each_vector(block.channels, [&](int64_t i, auto lanes) {
          values[i / kWidth] = make(channel + i, lanes);
        });
        block.each([&](int64_t place, int64_t i, auto lanes) {
          f(place, lanes, values[i / kWidth]);
        });
      }
    });
  }

 private:
  int64_t rows_, channels_, chunks_;
  double* scratch_;
};

// Merges the statistics of `more` elements per channel into those of the `seen`
// earlier ones.
template <class Number>
void merge(
    double* mean,
    double* squares,
    int64_t seen,
    const Number* more_mean,
    const Number* more_squares,
    int64_t more,
    int64_t channels) {
  const double share =
      static_cast<double>(more) / static_cast<double>(seen + more);
  const double weight = share * static_cast<double>(seen);
  for (int64_t i = 0; i < channels; ++i) {
    const double d = more_mean[i] - mean[i];
    mean[i] = d - d == 0 ? mean[i] + d * share : mean[i] + more_mean[i];
    squares[i] += more_squares[i] + d * d * weight;
  }
}

template <class Lanes>
Vec factors(const float* p, int64_t channel, Lanes lanes, float otherwise) {
  return p ? load(p + channel, lanes) : splat(otherwise);
}

template <class Args, class Lanes>
Vec scales_of(const Args& args, int64_t channel, Lanes lanes) {
  return load(args.rstd + channel, lanes) *
         factors(args.weight, channel, lanes, 1);
}

template <class T>
void normalise_rows(const BatchNormTrainingArgs& args) {
  const T* x = static_cast<const T*>(args.x);
  T* out = static_cast<T*>(args.out);
  const Rows rows(args);
  rows.each_block([&](Rows::Part sums, const Rows::Block& block) {
    // As in mean_of().
    float origin[kTile], mean[kTile], squares[kTile];
    const float share = 1 / static_cast<float>(block.rows);
    each_vector(block.channels, [&](int64_t i, auto lanes) {
      const Vec v =
          load(x + block.row * block.stride + block.channel + i, lanes);
      const Vec finite = v - v == Vec{} ? v : Vec{};
      store(origin + i, finite);
      store(mean + i, finite);
      store(squares + i, Vec{});
    });
    block.each([&](int64_t place, int64_t i, auto lanes) {
      const Vec d = load(x + place, lanes) - load(origin + i);
      store(mean + i, load(mean + i) + d * share);
    });
    block.each([&](int64_t place, int64_t i, auto lanes) {
      const Vec d = load(x + place, lanes) - load(mean + i);
      store(squares + i, load(squares + i) + d * d);
    });
    merge(
        sums.first,
        sums.second,
        block.before,
        mean,
        squares,
        block.rows,
        block.channels);
  });
  rows.each_range([&](int64_t begin, int64_t end) {
    const auto all = rows.part(0);
    for (int64_t chunk = 1; chunk < rows.chunks(); ++chunk) {
      const auto part = rows.part(chunk);
      const int64_t first = rows.first_row(chunk);
      merge(
          all.first + begin,
          all.second + begin,
          first,
          part.first + begin,
          part.second + begin,
          rows.first_row(chunk + 1) - first,
          end - begin);
    }
    for (int64_t i = begin; i < end; ++i)
      keep_statistics(args, i, {all.first[i], all.second[i]});
  });
  rows.each(
      [&](int64_t channel, auto lanes) {
        return Affine<Vec>{
            load(args.mean + channel, lanes),
            scales_of(args, channel, lanes),
            factors(args.bias, channel, lanes, 0)};
      },
      [&](int64_t place, auto lanes, const Affine<Vec>& affine) {
        store(out + place, affine(load(x + place, lanes)), lanes);
      });
}

template <class T>
void differentiate_rows(const BatchNormBackwardArgs& args) {
  const T* grad = static_cast<const T*>(args.grad_out);
  const T* x = static_cast<const T*>(args.x);
  T* grad_x = static_cast<T*>(args.grad_x);
  const Rows rows(args);
  rows.each_block([&](Rows::Part sums, const Rows::Block& block) {
    float mean[kTile], alone[kTile], product[kTile];
    each_vector(block.channels, [&](int64_t i, auto lanes) {
      store(mean + i, load(args.mean + block.channel + i, lanes));
      store(alone + i, Vec{});
      store(product + i, Vec{});
    });
    block.each([&](int64_t place, int64_t i, auto lanes) {
      const Vec g = load(grad + place, lanes);
      const Vec d = load(x + place, lanes) - load(mean + i);
      store(alone + i, load(alone + i) + g);
      store(product + i, load(product + i) + g * d);
    });
    for (int64_t i = 0; i < block.channels; ++i) {
      sums.first[i] += alone[i];
      sums.second[i] += product[i];
    }
  });
  // The first part receives the results of the sums.
  const auto all = rows.part(0);
  rows.each_range([&](int64_t begin, int64_t end) {
    for (int64_t chunk = 1; chunk < rows.chunks(); ++chunk) {
      const auto part = rows.part(chunk);
      for (int64_t i = begin; i < end; ++i) {
        all.first[i] += part.first[i];
        all.second[i] += part.second[i];
      }
    }
    for (int64_t i = begin; i < end; ++i) {
      const auto ways = keep_gradients(args, i, {all.first[i], all.second[i]});
      all.first[i] = ways.by_mean;
      all.second[i] = ways.by_variance;
    }
  });
  if (!grad_x)
    return;
  rows.each(
      [&](int64_t channel, auto lanes) {
        Gradient<Vec> of{
            args.own,
            load(args.mean + channel, lanes),
            scales_of(args, channel, lanes),
            {},
            {}};
        const int64_t here = min(kWidth, args.channels - channel);
        for (int64_t i = 0; i < here; ++i) {
          of.by_mean[i] = static_cast<float>(all.first[channel + i]);
          of.by_variance[i] = static_cast<float>(all.second[channel + i]);
        }
        return of;
      },
      [&](int64_t place, auto lanes, const Gradient<Vec>& of) {
        const Vec y = of(load(grad + place, lanes), load(x + place, lanes));
        store(grad_x + place, y, lanes);
      });
}

} // namespace

void batch_norm_training(const BatchNormTrainingArgs& args) {
  with_type<float, BFloat16>(args.dtype, [&]<class T>(T*) {
    (args.layout == ChannelLayout::planes ? normalise_planes<T>
                                          : normalise_rows<T>)(args);
  });
}

void batch_norm_backward(const BatchNormBackwardArgs& args) {
  with_type<float, BFloat16>(args.dtype, [&]<class T>(T*) {
    (args.layout == ChannelLayout::planes ? differentiate_planes<T>
                                          : differentiate_rows<T>)(args);
  });
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
