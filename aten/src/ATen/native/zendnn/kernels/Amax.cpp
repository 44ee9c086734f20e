// The largest and the smallest elements. Rows are searched one after the other,
// and columns, which are neighbours in memory, together.
#include "along.h"
#include "vec.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

constexpr int64_t kColumns = 512;
// Maximum threads that share the rows of too few columns.
constexpr int64_t kMostParts = 16;

// Loads elements. The smallest is the largest of those with the other sign.
template <class T, bool smallest, class Lanes>
Vec load_for(const T* x, Lanes lanes) {
  const Vec v = load(x, lanes);
  return smallest ? -v : v;
}

// NaN if there is one.
template <class T, bool smallest>
float most_of_row(const T* x, int64_t size) {
  const Vec most = reduce(
      size,
      splat(-__builtin_inff()),
      [&](int64_t i, auto lanes) {
        return load_for<T, smallest>(x + i, lanes);
      },
      max_or_nan);
  return any_nan(most) ? __builtin_nanf("") : max_lanes(most);
}

// The largest elements of neighbouring columns, which are kColumns at most.
template <class T, bool smallest>
void most_of_columns(
    const T* x,
    int64_t rows,
    int64_t stride,
    int64_t columns,
    float* most) {
  const auto at = [&](int64_t row, int64_t i, auto lanes) {
    return load_for<T, smallest>(x + row * stride + i, lanes);
  };
  if (columns <= kWidth) // which stay in a register
    return each_vector(columns, [&](int64_t i, auto lanes) {
      Vec v = at(0, i, lanes);
      for (int64_t row = 1; row < rows; ++row)
        v = max_or_nan(v, at(row, i, lanes));
      store(most, v);
    });
  each_vector(columns, [&](int64_t i, auto lanes) {
    store(most + i, at(0, i, lanes));
  });
  for (int64_t row = 1; row < rows; ++row)
    each_vector(columns, [&](int64_t i, auto lanes) {
      store(most + i, max_or_nan(load(most + i), at(row, i, lanes)));
    });
}

template <class T, bool smallest>
void write(const float* most, int64_t columns, T* out) {
  each_vector(columns, [&](int64_t i, auto lanes) {
    const Vec v = load(most + i);
    store(out + i, smallest ? -v : v, lanes);
  });
}

// Each thread searches a part of the rows.
template <class T, bool smallest>
void share_columns(
    const T* x,
    int64_t rows,
    int64_t stride,
    int64_t columns,
    int64_t threads,
    T* out) {
  float parts[kMostParts][kColumns];
  int64_t count = 1;
  in_threads(
      static_cast<int>(min(min(threads, kMostParts), rows)),
      [&](int64_t thread, int64_t all) {
        const int64_t begin = rows * thread / all,
                      end = rows * (thread + 1) / all;
        most_of_columns<T, smallest>(
            x + begin * stride, end - begin, stride, columns, parts[thread]);
        if (thread == 0)
          count = all;
      });
  for (int64_t part = 1; part < count; ++part)
    each_vector(columns, [&](int64_t i, auto) {
      store(
          parts[0] + i, max_or_nan(load(parts[0] + i), load(parts[part] + i)));
    });
  write<T, smallest>(parts[0], columns, out);
}

// Threads share each row where there are too few rows for them.
template <class T, bool smallest>
void most_of_rows(const AlongArgs& args) {
  const T* x = static_cast<const T*>(args.x);
  T* out = static_cast<T*>(args.out);
  const auto write_one = [&](int64_t row, float most) {
    store_one(out + row, smallest ? -most : most);
  };
  if (args.outer < threads_for(args.outer * args.dim, kGrain)) {
    for (int64_t row = 0; row < args.outer; ++row) {
      const T* from = x + row * args.dim;
      float most = -__builtin_inff();
      parallel(args.dim, kWidth, kGrain, [&](int64_t begin, int64_t end) {
        const float part = most_of_row<T, smallest>(from + begin, end - begin);
#pragma omp critical(zendnn_amax)
        most = most != most || part <= most ? most : part;
      });
      write_one(row, most);
    }
    return;
  }
  parallel(
      args.outer,
      1,
      ceil_div(kGrain, args.dim),
      [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row)
          write_one(
              row, most_of_row<T, smallest>(x + row * args.dim, args.dim));
      });
}

template <bool smallest>
void find_most(const AlongArgs& args) {
  const int64_t size = args.outer * args.dim * args.inner;
  if (size == 0)
    return;
  with_type<float, BFloat16>(args.dtype, [&]<class T>(T*) {
    if (args.inner == 1)
      return most_of_rows<T, smallest>(args);
    const int64_t threads = threads_for(size, kGrain);
    const int64_t share = ceil_div(args.outer * args.inner, threads);
    const int64_t block =
        round_up(min(min(share, args.inner), kColumns), kWidth);
    const int64_t blocks = ceil_div(args.inner, block);
    const int64_t pieces = args.outer * blocks;
    const auto each_piece = [&](int64_t begin, int64_t end, auto f) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t outer = i / blocks, first = i % blocks * block;
        f(static_cast<const T*>(args.x) + outer * args.dim * args.inner + first,
          min(block, args.inner - first),
          static_cast<T*>(args.out) + outer * args.inner + first);
      }
    };
    if (pieces < threads)
      return each_piece(0, pieces, [&](const T* x, int64_t columns, T* out) {
        share_columns<T, smallest>(
            x, args.dim, args.inner, columns, threads, out);
      });
    const int64_t grain = ceil_div(kGrain, args.dim * block);
    parallel(pieces, 1, grain, [&](int64_t begin, int64_t end) {
      each_piece(begin, end, [&](const T* x, int64_t columns, T* out) {
        float most[kColumns];
        most_of_columns<T, smallest>(x, args.dim, args.inner, columns, most);
        write<T, smallest>(most, columns, out);
      });
    });
  });
}

} // namespace

void amax(const AlongArgs& args) {
  find_most<false>(args);
}

void amin(const AlongArgs& args) {
  find_most<true>(args);
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
