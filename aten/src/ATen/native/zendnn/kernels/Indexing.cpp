// Elements that tensors of indices choose: rows of tables, and single elements.
#include "indexing.h"

#include "strided.h"
#include "vec.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

// Adds up the places in x of the indices at `offsets`; false out of range.
template <int operands>
bool add_places(
    const IndexArgs& args,
    const Index* const* indices,
    const int* operand,
    int count,
    const Offsets<operands>& offsets,
    const int64_t* advance,
    int64_t j,
    int64_t& place) {
  for (int k = 0; k < count; ++k) {
    const Index& index = *indices[k];
    const int64_t at = offsets.at[operand[k]] + j * advance[k];
    int64_t number = index.type == IndexType::int64
                         ? static_cast<const int64_t*>(index.data)[at]
                         : static_cast<const int32_t*>(index.data)[at];
    if (args.from_back && number < 0)
      number += index.limit;
    if (number < 0 || number >= index.limit)
      return false;
    place += number * index.step;
  }
  return true;
}

template <class T, int count>
bool choose(const IndexArgs& args) {
  constexpr int operands = count + 2;
  const int64_t* strides[operands] = {nullptr, args.x_strides};
  for (int k = 0; k < count; ++k)
    strides[2 + k] = args.indices[k].strides;
  const Loops<operands> loops =
      make_loops<operands>(args.ndim, args.sizes, strides);
  const int last = loops.ndim - 1;
  const int64_t stride = loops.strides[1][last];
  // Along a run some indices stay, and others change with each element.
  const Index *staying[count], *changing[count];
  int of_staying[count], of_changing[count], stay = 0, change = 0;
  int64_t still[count] = {}, advance[count] = {};
  for (int k = 0; k < count; ++k) {
    if (loops.strides[2 + k][last] == 0) {
      staying[stay] = args.indices + k;
      of_staying[stay++] = 2 + k;
    } else {
      changing[change] = args.indices + k;
      advance[change] = loops.strides[2 + k][last];
      of_changing[change++] = 2 + k;
    }
  }
  bool ok = true;
  parallel(loops.total(), 64, kGrain / 4, [&](int64_t begin, int64_t end) {
    bool valid = true;
    each_run(loops, begin, end, [&](Offsets<operands> at, int64_t size) {
      T* out = static_cast<T*>(args.out) + at.at[0];
      const T* x = static_cast<const T*>(args.x);
      int64_t first = at.at[1];
      if (!add_places(args, staying, of_staying, stay, at, still, 0, first)) {
        valid = false;
      } else if (change > 0) {
        for (int64_t j = 0; j < size; ++j) {
          int64_t place = first + j * stride;
          if (add_places(
                  args, changing, of_changing, change, at, advance, j, place))
            out[j] = x[place];
          else
            valid = false;
        }
      } else if (stride == 1) {
        __builtin_memcpy(out, x + first, size * sizeof(T));
      } else {
        for (int64_t j = 0; j < size; ++j)
          out[j] = x[first + j * stride];
      }
    });
    if (!valid)
      __atomic_store_n(&ok, false, __ATOMIC_RELAXED);
  });
  return ok;
}

template <class T>
bool choose(const IndexArgs& args) {
  switch (args.count) {
    case 1:
      return choose<T, 1>(args);
    case 2:
      return choose<T, 2>(args);
    case 3:
      return choose<T, 3>(args);
    default:
      return choose<T, 4>(args);
  }
}

template <class T>
bool put(const ScatterArgs& args) {
  const int64_t* strides[] = {
      args.out_strides, args.index_strides, args.value_strides};
  const Loops<3> loops = make_loops<3>(args.ndim, args.sizes, strides);
  const int last = loops.ndim - 1;
  bool ok = true;
  const int64_t lines = loops.total(), grain = kGrain / 4 / args.count + 1;
  parallel(lines, 1, grain, [&](int64_t begin, int64_t end) {
    bool valid = true;
    each_run(loops, begin, end, [&](Offsets<3> at, int64_t size) {
      for (int64_t line = 0; line < size; ++line) {
        T* out = static_cast<T*>(args.out) + at.at[0];
        const int64_t* indices = args.indices + at.at[1];
        const T* value = static_cast<const T*>(args.value) + at.at[2];
        for (int64_t i = 0; i < args.count; ++i) {
          const int64_t place = indices[i * args.index_step];
          if (place >= 0 && place < args.limit)
            out[place * args.out_step] = value[i * args.value_step];
          else
            valid = false;
        }
        for (int k = 0; k < 3; ++k)
          at.at[k] += loops.strides[k][last];
      }
    });
    if (!valid)
      __atomic_store_n(&ok, false, __ATOMIC_RELAXED);
  });
  return ok;
}

// Calls f with a null pointer of an unsigned type of so many bytes.
template <class F>
bool with_size(int64_t itemsize, F f) {
  switch (itemsize) {
    case 1:
      return f(static_cast<uint8_t*>(nullptr));
    case 2:
      return f(static_cast<uint16_t*>(nullptr));
    case 4:
      return f(static_cast<uint32_t*>(nullptr));
    default:
      return f(static_cast<uint64_t*>(nullptr));
  }
}

} // namespace

bool scatter(const ScatterArgs& args) {
  for (int64_t d = 0; d < args.ndim; ++d)
    if (args.sizes[d] == 0)
      return true;
  return with_size(
      args.itemsize, [&]<class T>(T* /*type*/) { return put<T>(args); });
}

bool index(const IndexArgs& args) {
  for (int64_t d = 0; d < args.ndim; ++d)
    if (args.sizes[d] == 0)
      return true;
  return with_size(
      args.itemsize, [&]<class T>(T* /*type*/) { return choose<T>(args); });
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
