// Indices of the largest elements. In a row, the maximum is found before its
// index; neighbouring columns are searched together.
#include "along.h"

#include "vec.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

constexpr int64_t kRun = 512; // of a row; one run is searched for the index
constexpr int64_t kColumns = 512;

struct Found {
  float value;
  int64_t place;
};

// Whether `a` wins although `b` comes first.
bool exceeds(float a, float b) {
  return !(a <= b) && b == b;
}

// Searches elements [begin, end), which must not be empty.
template <class T>
Found search(const T* x, int64_t begin, int64_t end) {
  const Vec lowest = splat(-__builtin_inff());
  Found best{lowest[0], begin};
  for (int64_t first = begin; first < end; first += kRun) {
    const Vec most = reduce(
        min(end - first, kRun),
        lowest,
        [&](int64_t i, auto lanes) { return load(x + first + i, lanes); },
        max_or_nan);
    const float value = any_nan(most) ? __builtin_nanf("") : max_lanes(most);
    if (exceeds(value, best.value))
      best = {value, first};
  }
  const Vec wanted = splat(best.value);
  unsigned lanes = 0;
  const auto look = [&](auto width) {
    const Vec v = load(x + best.place, width);
    lanes = lanes_where((v == wanted) | (v != v));
  };
  for (; best.place + kWidth <= end; best.place += kWidth)
    if (look(Full{}); lanes != 0)
      break;
  if (lanes == 0)
    look(Tail(end - best.place));
  best.place += __builtin_ctz(lanes);
  return best;
}

template <class T>
void search_rows(const AlongArgs& args) {
  const T* x = static_cast<const T*>(args.x);
  int64_t* out = static_cast<int64_t*>(args.out);
  if (args.outer < threads_for(args.outer * args.dim, kGrain)) {
    for (int64_t row = 0; row < args.outer; ++row) {
      const T* from = x + row * args.dim;
      Found best{-__builtin_inff(), args.dim};
      parallel(args.dim, kRun, kGrain, [&](int64_t begin, int64_t end) {
        const Found part = search(from, begin, end);
#pragma omp critical(zendnn_argmax)
        if (part.place < best.place ? !exceeds(best.value, part.value)
                                    : exceeds(part.value, best.value))
          best = part;
      });
      out[row] = best.place;
    }
    return;
  }
  const int64_t grain = ceil_div(kGrain, args.dim);
  parallel(args.outer, 1, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      out[row] = search(x + row * args.dim, 0, args.dim).place;
  });
}

template <class T>
void search_columns(
    const T* x,
    int64_t* out,
    int64_t rows,
    int64_t stride,
    int64_t columns) {
  float best[kColumns];
  uint32_t place[kColumns];
  each_vector(columns, [&](int64_t i, auto lanes) {
    store(best + i, load(x + i, lanes));
    store_bits(place + i, VecI{}, Full{});
  });
  for (int64_t row = 1; row < rows; ++row)
    each_vector(columns, [&](int64_t i, auto lanes) {
      const Vec v = load(x + row * stride + i, lanes), old = load(best + i);
      const VecI found = ((v > old) | (v != v)) & (old == old);
      const VecI here = splat_int(static_cast<int32_t>(row));
      store(best + i, found ? v : old);
      store_bits(
          place + i, found ? here : load_bits(place + i, Full{}), Full{});
    });
  for (int64_t i = 0; i < columns; ++i)
    out[i] = place[i];
}

} // namespace

void argmax(const AlongArgs& args) {
  if (args.outer * args.dim * args.inner == 0)
    return;
  with_type<float, BFloat16>(args.dtype, [&]<class T>(T*) {
    if (args.inner == 1)
      return search_rows<T>(args);
    const int64_t size = args.outer * args.dim * args.inner;
    const int64_t share =
        ceil_div(args.outer * args.inner, threads_for(size, kGrain));
    const int64_t block =
        round_up(min(min(share, args.inner), kColumns), kWidth);
    const int64_t blocks = ceil_div(args.inner, block);
    const int64_t grain = ceil_div(kGrain, args.dim * block);
    parallel(args.outer * blocks, 1, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t outer = i / blocks, first = i % blocks * block;
        search_columns(
            static_cast<const T*>(args.x) + outer * args.dim * args.inner +
                first,
            static_cast<int64_t*>(args.out) + outer * args.inner + first,
            args.dim,
            args.inner,
            min(block, args.inner - first));
      }
    });
  });
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
