// Elementwise functions, and chains of them.
#include "elementwise.h"

#include "named_functions.h"
#include "strided.h"

namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA {
namespace {

template <class T>
void apply(
    Eltwise algorithm,
    float alpha,
    float beta,
    const T* src,
    T* dst,
    int64_t size) {
  with_function<T>(algorithm, alpha, beta, [&](auto function) {
    each_vector(size, [&](int64_t i, auto lanes) {
      store(dst + i, function(load(src + i, lanes)), lanes);
    });
  });
}

template <class F>
void with_function(Binary algorithm, F f) {
  switch (algorithm) {
    case Binary::add:
      return f([](Vec a, Vec b) { return a + b; });
    case Binary::sub:
      return f([](Vec a, Vec b) { return a - b; });
    case Binary::mul:
      return f([](Vec a, Vec b) { return a * b; });
    case Binary::div:
      return f([](Vec a, Vec b) { return a / b; });
    // The instructions return b if either is NaN.
    case Binary::max:
      return f(max_or_nan);
    case Binary::min:
      return f([](Vec a, Vec b) { return a == a ? min(a, b) : a; });
  }
}

// What an instruction reads or makes of a part of the elements: one after the
// other, or the same for all.
struct Slot {
  char* data;
  bool repeats;
};

template <class T>
T* items(const Slot& slot) {
  return reinterpret_cast<T*>(slot.data);
}

// The elements one after the other, in `space` where they are the same.
template <class T>
const T* each_item(const Slot& slot, int64_t size, T* space) {
  return side_by_side(items<T>(slot), slot.repeats ? 0 : 1, 0, size, space);
}

template <class T, class Function>
void combine(
    Function function,
    const Slot& left,
    const Slot& right,
    T* out,
    int64_t size) {
  const T *a = items<T>(left), *b = items<T>(right);
  if (!left.repeats && !right.repeats) {
    each_vector(size, [&](int64_t i, auto lanes) {
      store(out + i, function(load(a + i, lanes), load(b + i, lanes)), lanes);
    });
  } else if (!left.repeats) {
    const Vec same = splat(load_one(b));
    each_vector(size, [&](int64_t i, auto lanes) {
      store(out + i, function(load(a + i, lanes), same), lanes);
    });
  } else if (!right.repeats) {
    const Vec same = splat(load_one(a));
    each_vector(size, [&](int64_t i, auto lanes) {
      store(out + i, function(same, load(b + i, lanes)), lanes);
    });
  } else {
    const Vec same = function(splat(load_one(a)), splat(load_one(b)));
    each_vector(
        size, [&](int64_t i, auto lanes) { store(out + i, same, lanes); });
  }
}

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

void convert(const Instruction& it, const Slot* slots, int64_t size) {
  with_type(AllTypes{}, it.dtype, [&]<class To>(To*) {
    with_type(AllTypes{}, it.from, [&]<class From>(From*) {
      From space[kChunk];
      const From* from = each_item(slots[it.a], size, space);
      To* to = items<To>(slots[it.out]);
      each_vector(size, [&](int64_t i, auto lanes) {
        store(to + i, load(from + i, lanes), lanes);
      });
    });
  });
}

// Executes an instruction for up to kChunk elements.
void execute(const Instruction& it, const Slot* slots, int64_t size) {
  if (it.kind == Instruction::Kind::conversion)
    return convert(it, slots, size);
  with_type<float, BFloat16>(it.dtype, [&]<class T>(T*) {
    T space[kChunk], other_space[kChunk];
    T* out = items<T>(slots[it.out]);
    switch (it.kind) {
      case Instruction::Kind::function:
        return apply(
            it.function,
            it.alpha,
            it.beta,
            each_item(slots[it.a], size, space),
            out,
            size);
      case Instruction::Kind::combination:
        return with_function(it.combination, [&](auto function) {
          combine(function, slots[it.a], slots[it.b], out, size);
        });
      case Instruction::Kind::choice: {
        uint8_t conditions[kChunk];
        return choose(
            each_item(slots[it.a], size, conditions),
            each_item(slots[it.b], size, space),
            each_item(slots[it.c], size, other_space),
            out,
            size);
      }
      case Instruction::Kind::conversion: // by convert()
        __builtin_unreachable();
    }
  });
}

// Rows of elements that are far apart.
template <class T>
struct Rows {
  T* data;
  int64_t row_stride, stride;

  T& at(int64_t row, int64_t i) const {
    return data[row * row_stride + i * stride];
  }
};

// Copies rows to or from memory without gaps.
template <class T>
void collect(const Rows<T>& from, int64_t rows, int64_t size, T* to) {
  for (int64_t row = 0; row < rows; ++row, to += size)
    if (from.stride == 1)
      __builtin_memcpy(to, &from.at(row, 0), size * sizeof(T));
    else
      for (int64_t i = 0; i < size; ++i)
        to[i] = from.at(row, i);
}

template <class T>
void spread(const T* from, int64_t rows, int64_t size, const Rows<T>& to) {
  for (int64_t row = 0; row < rows; ++row, from += size)
    for (int64_t i = 0; i < size; ++i)
      to.at(row, i) = from[i];
}

template <class F>
void with_item(int64_t itemsize, F f) {
  switch (itemsize) {
    case 1:
      return f(static_cast<uint8_t*>(nullptr));
    case 2:
      return f(static_cast<uint16_t*>(nullptr));
    default:
      return f(static_cast<uint32_t*>(nullptr));
  }
}

// Memory for what is kept of a part, and for operands that are collected.
template <int places>
using Space = char[places][kChunk * sizeof(float)];

// Asks for the share of an instruction in what the next part reads: memory is
// idle otherwise while instructions compute what is in the cache.
inline void ask_for_next(
    const PointwiseArgs& args,
    const Slot* slots,
    int64_t instruction) {
  for (int64_t k = 0; k < args.num_places; ++k) {
    if (args.places[k].data == nullptr || slots[k].repeats)
      continue;
    const int64_t bytes = kChunk * args.places[k].itemsize;
    const int64_t first = bytes * instruction / args.count,
                  last = bytes * (instruction + 1) / args.count;
    for (int64_t at = first; at < last; at += 64)
      __builtin_prefetch(slots[k].data + bytes + at, 0, 2);
  }
}

// Executes all instructions for rows of `size` elements along the last
// dimension, up to kChunk in all.
template <int places>
void execute_part(
    const PointwiseArgs& args,
    const Loops<places>& loops,
    const Offsets<places>& at,
    int64_t rows,
    int64_t size,
    bool more,
    Space<places>& space) {
  const int last = loops.ndim - 1;
  const auto rows_of = [&]<class T>(int64_t k, T*) {
    return Rows<T>{
        static_cast<T*>(args.places[k].data) + at.at[k],
        rows > 1 ? loops.strides[k][last - 1] : 0,
        loops.strides[k][last]};
  };
  Slot slots[places];
  bool apart[places] = {}; // not one after the other, nor all the same
  for (int64_t k = 0; k < args.num_places; ++k) {
    const auto& place = args.places[k];
    slots[k] = {space[k], false};
    if (place.data == nullptr)
      continue;
    with_item(place.itemsize, [&]<class T>(T* type) {
      const Rows<T> source = rows_of(k, type);
      apart[k] = source.stride > 1 ||
                 (rows > 1 && source.row_stride != size * source.stride);
      if (apart[k])
        collect(source, rows, size, items<T>(slots[k]));
      else
        slots[k] = {reinterpret_cast<char*>(source.data), source.stride == 0};
    });
  }
  for (int64_t i = 0; i < args.count; ++i) {
    if (more)
      ask_for_next(args, slots, i);
    execute(args.instructions[i], slots, rows * size);
  }
  for (int64_t i = 0; i < args.count; ++i)
    if (const int out = args.instructions[i].out; apart[out])
      with_item(args.places[out].itemsize, [&]<class T>(T* type) {
        spread(items<T>(slots[out]), rows, size, rows_of(out, type));
      });
}

template <int places>
void execute_all(const PointwiseArgs& args) {
  const int64_t nowhere[kMaxDims] = {};
  const int64_t* strides[places];
  for (int64_t k = 0; k < places; ++k)
    strides[k] = k < args.num_places && args.places[k].data != nullptr
                     ? args.places[k].strides
                     : nowhere;
  // The last result says in which order to go.
  const int result = args.instructions[args.count - 1].out;
  const int64_t* const of_result = strides[result];
  strides[result] = strides[0];
  strides[0] = of_result;
  Loops<places> loops = make_loops<places>(args.ndim, args.sizes, strides);
  for (int d = 0; d < loops.ndim; ++d)
    Loops<places>::exchange(loops.strides[0][d], loops.strides[result][d]);

  // A part is some of a row, or several short ones.
  const int64_t row = loops.sizes[loops.ndim - 1];
  const bool is_short = loops.ndim > 1 && 2 * row <= kChunk;
  Loops<places> outer = loops;
  outer.ndim -= is_short ? 1 : 0;
  const int along = outer.ndim - 1;
  const int64_t elements = is_short ? row : 1; // of each of its steps
  const int64_t most = kChunk / elements;
  const int64_t grain = ceil_div(max(kGrain / args.count, kChunk), elements);
  const int64_t aligned = ceil_div(64, elements);
  parallel(outer.total(), aligned, grain, [&](int64_t begin, int64_t end) {
    alignas(64) Space<places> space;
    each_run(outer, begin, end, [&](Offsets<places> at, int64_t size) {
      for (int64_t first = 0; first < size; first += most) {
        const int64_t count = min(size - first, most);
        const bool more = first + most < size;
        const int64_t rows = is_short ? count : 1;
        execute_part(
            args, loops, at, rows, count * elements / rows, more, space);
        for (int64_t k = 0; k < args.num_places; ++k)
          at.at[k] += count * loops.strides[k][along];
      }
    });
  });
}

} // namespace

void eltwise(const EltwiseArgs& args) {
  with_type<float, BFloat16>(args.dtype, [&]<class T>(T*) {
    parallel(args.size, 64, kGrain, [&](int64_t begin, int64_t end) {
      apply(
          args.algorithm,
          args.alpha,
          args.beta,
          static_cast<const T*>(args.src) + begin,
          static_cast<T*>(args.dst) + begin,
          end - begin);
    });
  });
}

void pointwise(const PointwiseArgs& args) {
  for (int64_t d = 0; d < args.ndim; ++d)
    if (args.sizes[d] == 0)
      return;
  if (args.num_places <= 6)
    execute_all<6>(args);
  else
    execute_all<kMostPlaces>(args);
}

} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA
