// Rotary position embedding.
#include "rope.h"

#include "strided.h"
#include "vec.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

// -b a -d c … of a b c d …
inline Vec turn_pairs(Vec x) {
  typedef uint64_t Pairs __attribute__((vector_size(sizeof(Vec))));
  const auto pairs = reinterpret_cast<Pairs>(x);
  return reinterpret_cast<Vec>(
      (pairs << 32 | pairs >> 32) ^ uint64_t{0x80000000});
}

template <class T>
void rotate_neighbours(
    const T* x,
    const T* cos,
    const T* sin,
    T* out,
    int64_t size) {
  each_vector(size, [&](int64_t i, auto lanes) {
    const Vec a = load(x + i, lanes);
    const Vec turned = rounded(turn_pairs(a) * load(sin + i, lanes));
    store(out + i, rounded(a * load(cos + i, lanes)) + turned, lanes);
  });
}

template <class T>
void rotate_halves(
    const T* x,
    const T* cos,
    const T* sin,
    T* out,
    int64_t half) {
  each_vector(half, [&](int64_t i, auto lanes) {
    const int64_t j = half + i;
    const Vec a = load(x + i, lanes), b = load(x + j, lanes);
    const Vec first =
        rounded(a * load(cos + i, lanes)) - rounded(b * load(sin + i, lanes));
    const Vec second =
        rounded(b * load(cos + j, lanes)) + rounded(a * load(sin + j, lanes));
    store(out + i, first, lanes);
    store(out + j, second, lanes);
  });
}

} // namespace

void rope(const RopeArgs& args) {
  for (int64_t d = 0; d < args.ndim; ++d)
    if (args.sizes[d] == 0)
      return;
  const int64_t size = args.sizes[args.ndim - 1], rotary = args.rotary;
  const Loops<4> rows = make_loops<4>(
      args.ndim - 1,
      args.sizes,
      {args.out_strides, args.x_strides, args.cos_strides, args.sin_strides});
  const int last = rows.ndim - 1;
  with_type<float, BFloat16>(args.dtype, [&]<class T>(T*) {
    const auto* x = static_cast<const T*>(args.x);
    const auto* cos = static_cast<const T*>(args.cos);
    const auto* sin = static_cast<const T*>(args.sin);
    auto* out = static_cast<T*>(args.out);
    const int64_t grain = ceil_div(kGrain, size);
    parallel(rows.total(), 1, grain, [&](int64_t begin, int64_t end) {
      each_run(rows, begin, end, [&](Offsets<4> at, int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
          const auto place = [&](int k) {
            return at.at[k] + i * rows.strides[k][last];
          };
          T* to = out + place(0);
          const T *from = x + place(1), *c = cos + place(2),
                  *s = sin + place(3);
          if (args.interleaved)
            rotate_neighbours(from, c, s, to, rotary);
          else
            rotate_halves(from, c, s, to, rotary / 2);
          __builtin_memcpy(
              to + rotary, from + rotary, (size - rotary) * sizeof(T));
        }
      });
    });
  });
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
