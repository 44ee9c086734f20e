// Resampling of images. Contiguous channels are summed directly; contiguous
// rows are first combined with each other, and then within themselves.
#include "resampling.h"

#include "vec.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

Vec gather(const float* from, VecI places) {
#ifdef __AVX512F__
  return _mm512_i32gather_ps(reinterpret_cast<__m512i>(places), from, 4);
#else
  return _mm256_i32gather_ps(from, reinterpret_cast<__m256i>(places), 4);
#endif
}

template <class Lanes>
VecI load_places(const int32_t* from, Lanes lanes) {
  return load_bits(reinterpret_cast<const uint32_t*>(from), lanes);
}

// The sum of value(tap), weighted by weight(tap) if there are several taps.
template <int taps, class Value, class Weight>
inline Vec weighted(Value value, Weight weight) {
  if constexpr (taps == 1)
    return value(0);
  Vec sum = value(0) * weight(0);
#pragma GCC unroll 4
  for (int tap = 1; tap < taps; ++tap)
    sum = value(tap) * weight(tap) + sum;
  return sum;
}

// One line of the result.
template <int taps>
struct Line {
  int64_t away[taps]; // offsets from the start of the image
  Vec weights[taps];

  Line(const int32_t* lines, int64_t i, int64_t count, int64_t stride) {
    const auto* factors = reinterpret_cast<const float*>(lines + taps * count);
    for (int tap = 0; tap < taps; ++tap) {
      away[tap] = lines[tap * count + i] * stride;
      weights[tap] = splat(taps == 1 ? 1 : factors[tap * count + i]);
    }
  }
};

template <class T, int down, int across>
void sum_pixels(const ResampleArgs& args, int64_t batch, int64_t y) {
  const ResampleStrides& in = args.x_strides;
  const T* x = static_cast<const T*>(args.x) + batch * in.batch;
  T* out = static_cast<T*>(args.out) + batch * args.out_strides.batch +
           y * args.out_strides.row;
  const Line<down> row(args.rows, y, args.out_height, in.row);
  for (int64_t i = 0; i < args.out_width; ++i, out += args.out_strides.pixel) {
    const Line<across> column(args.columns, i, args.out_width, in.pixel);
    each_vector(args.channels, [&](int64_t c, auto lanes) {
      const Vec sum = weighted<down>(
          [&](int j) {
            return weighted<across>(
                [&](int k) {
                  return load(x + row.away[j] + column.away[k] + c, lanes);
                },
                [&](int k) { return column.weights[k]; });
          },
          [&](int j) { return row.weights[j]; });
      store(out + c, sum, lanes);
    });
  }
}

// Pixels of a row of the image that are buffered at a time.
constexpr int64_t kSpace = 4096;

template <class T, int down, int across>
void sum_rows(
    const ResampleArgs& args,
    int64_t batch,
    int64_t channel,
    int64_t y) {
  const ResampleStrides& in = args.x_strides;
  const T* x =
      static_cast<const T*>(args.x) + batch * in.batch + channel * in.channel;
  T* out = static_cast<T*>(args.out) + batch * args.out_strides.batch +
           channel * args.out_strides.channel + y * args.out_strides.row;
  const Line<down> line(args.rows, y, args.out_height, in.row);
  const int32_t* first = args.columns;
  const int32_t* last = first + (across - 1) * args.out_width;
  const auto* weights = reinterpret_cast<const float*>(last + args.out_width);
  int64_t end = 0;
  for (int64_t begin = 0; begin < args.out_width; begin = end) {
    // As many pixels of the result as the buffered ones allow.
    const int32_t left = first[begin];
    end = args.out_width;
    if (last[end - 1] >= left + kSpace)
      for (end = begin + 1; last[end] < left + kSpace;)
        ++end;
    float space[kSpace];
    const float* row = space;
    if constexpr (down == 1 && sizeof(T) == sizeof(float))
      row = x + line.away[0] + left;
    else
      each_vector(last[end - 1] + 1 - left, [&](int64_t i, auto lanes) {
        const Vec sum = weighted<down>(
            [&](int tap) { return load(x + line.away[tap] + left + i, lanes); },
            [&](int tap) { return line.weights[tap]; });
        store(space + i, sum, lanes);
      });
    each_vector(end - begin, [&](int64_t i, auto lanes) {
      const Vec sum = weighted<across>(
          [&](int tap) {
            const int32_t* places = first + tap * args.out_width + begin + i;
            const VecI away = load_places(places, lanes) - left;
            return gather(row, away > 0 ? away : 0); // valid beyond a tail, too
          },
          [&](int tap) {
            return load(weights + tap * args.out_width + begin + i, lanes);
          });
      store(out + begin + i, sum, lanes);
    });
  }
}

// Keys' kernel for pixels at a distance of up to 1, and of 1 to 2 (R. Keys,
// Cubic convolution interpolation for digital image processing, 1981), with
// torch's slope.
constexpr float kSlope = -0.75f;
float near_weight(float x) {
  return ((kSlope + 2) * x - (kSlope + 3)) * x * x + 1;
}
float far_weight(float x) {
  return ((kSlope * x - 5 * kSlope) * x + 8 * kSlope) * x - 4 * kSlope;
}

// The product as torch rounds it, never fused with an addition.
float rounded_product(float a, float b) {
  return static_cast<float>(static_cast<double>(a) * b);
}

template <int down, int across>
struct Taps {};

template <class F>
void with_taps(const ResampleArgs& args, F f) {
  switch (args.across) {
    case Resampling::nearest:
      return f(Taps<1, 1>{});
    case Resampling::linear:
      return args.down == Resampling::nearest ? f(Taps<1, 2>{})
                                              : f(Taps<2, 2>{});
    case Resampling::cubic:
      return f(Taps<4, 4>{});
  }
}

} // namespace

// Uses torch's own arithmetic, so that ties round as in torch.
void find_lines(const LinesArgs& args) {
  const int64_t taps = taps_of(args.algorithm), end = args.in - 1;
  auto* const weights = reinterpret_cast<float*>(args.lines + taps * args.out);
  const auto in = static_cast<float>(args.in);
  const auto out = static_cast<float>(args.out);
  float scale =
      args.factor > 0 ? static_cast<float>(1 / args.factor) : in / out;
  if (args.align_corners)
    scale = args.out > 1 ? (in - 1) / (out - 1) : 0;
  const bool copies =
      args.algorithm == Resampling::linear && args.in == args.out;
  const bool centres =
      args.algorithm != Resampling::nearest && !args.align_corners;
  for (int64_t i = 0; i < args.out; ++i) {
    const float place = static_cast<float>(i);
    float source = centres ? rounded_product(scale, place + 0.5f) - 0.5f
                           : rounded_product(scale, place);
    if (args.algorithm == Resampling::linear)
      source = copies ? place : source > 0 ? source : 0;
    // A factor near 0 yields positions that overflow integers, and NaN.
    const int64_t line = source < static_cast<float>(end)
                             ? static_cast<int64_t>(__builtin_floorf(source))
                             : end;
    const float beyond = source - static_cast<float>(line);
    const float share = beyond > 0 ? (beyond < 1 ? beyond : 1) : 0;
    const float rest = 1 - share;
    for (int64_t tap = 0; tap < taps; ++tap) {
      // A copied line is not blended with the next one times 0, which may be
      // NaN.
      const int64_t wanted = copies ? line : line + tap - (taps == 4 ? 1 : 0);
      args.lines[tap * args.out + i] =
          static_cast<int32_t>(max(min(wanted, end), 0));
    }
    if (taps == 1)
      continue;
    const float found[4] = {
        taps == 4 ? far_weight(1 + share) : rest,
        taps == 4 ? near_weight(share) : share,
        near_weight(rest),
        far_weight(1 + rest)};
    for (int64_t tap = 0; tap < taps; ++tap)
      weights[tap * args.out + i] = found[tap];
  }
}

void resample(const ResampleArgs& args) {
  const bool rows = args.x_strides.pixel == 1 && args.out_strides.pixel == 1;
  const int64_t images = args.batch * (rows ? args.channels : 1);
  const int64_t each = args.out_width * (rows ? 1 : args.channels);
  with_type<float, BFloat16>(args.dtype, [&]<class T>(T*) {
    with_taps(args, [&]<int down, int across>(Taps<down, across>) {
      parallel(
          images * args.out_height,
          1,
          ceil_div(kGrain, max(each * down * across, 1)),
          [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
              const int64_t image = i / args.out_height;
              const int64_t y = i % args.out_height;
              if (rows)
                sum_rows<T, down, across>(
                    args, image / args.channels, image % args.channels, y);
              else
                sum_pixels<T, down, across>(args, image, y);
            }
          });
    });
  });
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
