// Images in other sizes: channels side by side are blended as they are; rows
// are blended with each other first, and then within themselves.
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

// As torch does it: of two infinities, the difference would be NaN.
Vec blend(Vec a, Vec b, Vec share) {
  return a * (1.0f - share) + b * share;
}

template <class T>
void blend_pixels(const ResampleArgs& args, int64_t batch, int64_t y) {
  const ResampleStrides& in = args.x_strides;
  const T* x = static_cast<const T*>(args.x) + batch * in.batch;
  const T* above = x + args.rows.first[y] * in.row;
  const T* below = x + args.rows.second[y] * in.row;
  T* out = static_cast<T*>(args.out) + batch * args.out_strides.batch +
           y * args.out_strides.row;
  for (int64_t i = 0; i < args.out_width; ++i, out += args.out_strides.pixel) {
    const int64_t left = args.columns.first[i] * in.pixel;
    const int64_t right = args.columns.second[i] * in.pixel;
    if (!args.rows.share) {
      each_vector(args.channels, [&](int64_t c, auto lanes) {
        store(out + c, load(above + left + c, lanes), lanes);
      });
      continue;
    }
    const Vec down = splat(args.rows.share[y]);
    const Vec across = splat(args.columns.share[i]);
    each_vector(args.channels, [&](int64_t c, auto lanes) {
      const Vec a = load(above + left + c, lanes);
      const Vec b = load(above + right + c, lanes);
      const Vec d = load(below + left + c, lanes);
      const Vec e = load(below + right + c, lanes);
      store(
          out + c,
          blend(blend(a, b, across), blend(d, e, across), down),
          lanes);
    });
  }
}

template <class T>
void blend_rows(
    const ResampleArgs& args,
    int64_t batch,
    int64_t channel,
    int64_t y) {
  const ResampleStrides& in = args.x_strides;
  const T* x =
      static_cast<const T*>(args.x) + batch * in.batch + channel * in.channel;
  const T* above = x + args.rows.first[y] * in.row;
  const T* below = x + args.rows.second[y] * in.row;
  T* out = static_cast<T*>(args.out) + batch * args.out_strides.batch +
           channel * args.out_strides.channel + y * args.out_strides.row;
  float row[kLongestRow];
  const Vec down = splat(args.rows.share ? args.rows.share[y] : 0);
  each_vector(args.width, [&](int64_t i, auto lanes) {
    const Vec one = load(above + i, lanes);
    store(
        row + i,
        args.rows.share ? blend(one, load(below + i, lanes), down) : one,
        lanes);
  });
  each_vector(args.out_width, [&](int64_t i, auto lanes) {
    const Vec left = gather(row, load_places(args.columns.first + i, lanes));
    if (!args.columns.share) {
      store(out + i, left, lanes);
      return;
    }
    const Vec right = gather(row, load_places(args.columns.second + i, lanes));
    const Vec across = load(args.columns.share + i, lanes);
    store(out + i, blend(left, right, across), lanes);
  });
}

} // namespace

void resample(const ResampleArgs& args) {
  const bool rows = args.x_strides.pixel == 1 && args.out_strides.pixel == 1 &&
                    args.width <= kLongestRow;
  const int64_t images = args.batch * (rows ? args.channels : 1);
  const int64_t each = args.out_width * (rows ? 1 : args.channels);
  with_type(args.dtype, [&]<class T>(T*) {
    parallel(
        images * args.out_height,
        1,
        ceil_div(kGrain, max(each, 1)),
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t image = i / args.out_height, y = i % args.out_height;
            if (rows)
              blend_rows<T>(
                  args, image / args.channels, image % args.channels, y);
            else
              blend_pixels<T>(args, image, y);
          }
        });
  });
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
