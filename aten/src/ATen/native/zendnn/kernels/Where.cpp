// Selection between two tensors.
#include "where.h"

#include "strided.h"
#include "vec.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

template <class T>
void choose(
    const uint8_t* condition,
    const T* x,
    const T* y,
    T* out,
    int64_t size) {
  each_vector(size, [&](int64_t i, auto lanes) {
    const VecI chosen = load_bits(condition + i, lanes) != 0;
    store(out + i, chosen ? load(x + i, lanes) : load(y + i, lanes), lanes);
  });
}

} // namespace

void where(const WhereArgs& args) {
  for (int64_t d = 0; d < args.ndim; ++d)
    if (args.sizes[d] == 0)
      return;
  const Loops<4> loops = make_loops<4>(
      args.ndim,
      args.sizes,
      {args.out_strides,
       args.condition_strides,
       args.x_strides,
       args.y_strides});
  const int last = loops.ndim - 1;
  with_type(args.dtype, [&]<class T>(T*) {
    parallel(loops.total(), 64, kGrain, [&](int64_t begin, int64_t end) {
      uint8_t conditions[kChunk];
      T xs[kChunk], ys[kChunk], outs[kChunk];
      each_run(loops, begin, end, [&](Offsets<4> at, int64_t size) {
        T* out = static_cast<T*>(args.out) + at.at[0];
        const int64_t stride = loops.strides[0][last];
        for (int64_t first = 0; first < size; first += kChunk) {
          const int64_t count = min(size - first, kChunk);
          T* to = stride == 1 ? out + first : outs;
          choose(
              side_by_side(
                  args.condition + at.at[1],
                  loops.strides[1][last],
                  first,
                  count,
                  conditions),
              side_by_side(
                  static_cast<const T*>(args.x) + at.at[2],
                  loops.strides[2][last],
                  first,
                  count,
                  xs),
              side_by_side(
                  static_cast<const T*>(args.y) + at.at[3],
                  loops.strides[3][last],
                  first,
                  count,
                  ys),
              to,
              count);
          if (stride != 1)
            for (int64_t i = 0; i < count; ++i)
              out[(first + i) * stride] = to[i];
        }
      });
    });
  });
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
