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

// Calls f with the number at an index, if it is in range.
template <class F>
inline bool at_index(const ScatterArgs& args, int64_t index, F f) {
  if (index < 0 || index >= args.limit)
    return false;
  f(index * args.out_step);
  return true;
}

template <class T, class Combine>
bool put(const ScatterArgs& args, Combine combine) {
  const int64_t* strides[] = {
      args.out_strides, args.index_strides, args.value_strides};
  const Loops<3> loops = make_loops<3>(args.ndim, args.sizes, strides);
  const int last = loops.ndim - 1;
  const int64_t step = loops.strides[0][last],
                index_step = loops.strides[1][last],
                value_step = loops.strides[2][last];
  const bool of_rows = index_step == 0;
  bool ok = true;
  const int64_t lines = loops.total(), grain = kGrain / 4 / args.count + 1;
  parallel(lines, 1, grain, [&](int64_t begin, int64_t end) {
    bool valid = true;
    each_run(loops, begin, end, [&](Offsets<3> at, int64_t size) {
      T* out = static_cast<T*>(args.out) + at.at[0];
      const int64_t* indices = args.indices + at.at[1];
      const T* value = static_cast<const T*>(args.value) + at.at[2];
      for (int64_t i = 0; of_rows && i < args.count; ++i) {
        const T* row = value + i * args.value_step;
        valid &= at_index(args, indices[i * args.index_step], [&](int64_t to) {
          for (int64_t j = 0; j < size; ++j)
            combine(out[to + j * step], row[j * value_step]);
        });
      }
      for (int64_t j = 0; !of_rows && j < size; ++j)
        for (int64_t i = 0; i < args.count; ++i)
          valid &= at_index(
              args,
              indices[j * index_step + i * args.index_step],
              [&](int64_t to) {
                combine(
                    out[to + j * step],
                    value[j * value_step + i * args.value_step]);
              });
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
  switch (args.mode) {
    case Scatter::add_float32:
      return put<float>(args, [](float& to, float x) { to += x; });
    case Scatter::add_bfloat16:
      return put<BFloat16>(args, [](BFloat16& to, BFloat16 x) {
        store_one(&to, load_one(&to) + load_one(&x));
      });
    case Scatter::add_int64: // which wraps around
      return put<uint64_t>(args, [](uint64_t& to, uint64_t x) { to += x; });
    default:
      return with_size(args.itemsize, [&]<class T>(T* /*type*/) {
        return put<T>(args, [](T& to, T x) { to = x; });
      });
  }
}

bool index(const IndexArgs& args) {
  for (int64_t d = 0; d < args.ndim; ++d)
    if (args.sizes[d] == 0)
      return true;
  return with_size(
      args.itemsize, [&]<class T>(T* /*type*/) { return choose<T>(args); });
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
