// Steps that run kernels of ours.
#pragma once

#include <torch/csrc/zendnn/plan/describe/Operators.h>

#include <c10/util/SmallVector.h>

#include <cstring>
#include <functional>
#include <initializer_list>
#include <optional>
#include <type_traits>
#include <utility>

namespace at::native::zendnn::plan {

// The operand row by row; nowhere if the node does not have it.
inline Ref dense_or_none(Builder& builder, const Node& node, size_t index) {
  return has(node, index) ? builder.dense(tensor(node, index)).ref : Ref{};
}

// The value in memory with strides over a result's dimensions.
inline Place
broadcast_place(Builder& builder, int64_t value, const Dims& result) {
  auto place = builder.strided(value);
  place.strides =
      broadcast_strides(builder.values().sizes(value), place.strides, result);
  return place;
}

// A layout of the value without gaps: in blocks, channels-last or row-major, as
// a place of this value or of another of its rank is.
inline memory::desc
layout_like(const Builder& builder, int64_t value, const Place& place) {
  const auto& sizes = builder.values().sizes(value);
  const auto dtype = builder.values().dtype(value);
  if (place.blocked) {
    return blocked_layout(sizes, dtype);
  }
  return sizes.size() > 2 && place.strides[1] == 1
             ? memory::desc(sizes, type_of(dtype), channels_last_strides(sizes))
             : builder.values().row_major(value);
}

// The layout of a result of single elements: that of an operand of its size if
// that is an image, and row-major otherwise or where the region returns it so.
// A transposed matrix is no image: its next reader wants rows.
inline memory::desc
layout_after(const Builder& builder, int64_t output, const Place& operand) {
  const auto& values = builder.values();
  if (!operand.blocked && values.sizes(output).size() < 4) {
    return values.row_major(output);
  }
  const auto layout = layout_like(builder, output, operand);
  const Place returned{.strides = values.result_strides(output)};
  return builder.is_result(output) &&
                 builder.describe(output, returned) != layout
             ? values.row_major(output)
             : layout;
}

// A number over so many dimensions, once for all executables of a plan.
Place place_number(
    Builder& builder,
    c10::ScalarType dtype,
    float number,
    size_t rank = 0);

// Copies from one plain place to another.
struct Copy {
  Dims sizes;
  int64_t item_bytes;
  Place from, to;

  void run(const Frame& frame) const;
};
void add_copies(
    Builder& builder,
    const Node& node,
    const std::string& implementation,
    std::vector<Copy> copies);

// A pointer among a kernel's arguments, and what it points to: a place, known
// at each run, or numbers that the step keeps a copy of.
template <typename Args>
struct Pointer {
  template <typename T>
  Pointer(T* Args::* member, Ref ref) : offset(offset_of(member)), ref(ref) {}
  Pointer(const int64_t* Args::* member, IntArrayRef numbers)
      : offset(offset_of(member)), numbers(numbers) {}

  template <typename T>
  static size_t offset_of(T* Args::* member) {
    const Args args{};
    return reinterpret_cast<const char*>(&(args.*member)) -
           reinterpret_cast<const char*>(&args);
  }
  static void set(Args& args, size_t offset, const void* target) {
    std::memcpy(
        reinterpret_cast<char*>(&args) + offset, &target, sizeof target);
  }

  size_t offset;
  Ref ref{};
  std::optional<IntArrayRef> numbers{};
};

// Adds a step that runs the kernel on `args` with these pointers. A kernel
// returns false for an index out of range: then `otherwise` runs, or raises
// torch's error; without it, IndexError is raised.
template <typename Result, typename Args>
void add_kernel(
    Builder& builder,
    const Node& node,
    const std::string& implementation,
    Result (*kernel)(const Args&),
    std::type_identity_t<Args> args,
    std::initializer_list<Pointer<std::type_identity_t<Args>>> pointers,
    double flops = 0,
    std::function<void(const Frame&)> otherwise = {},
    std::optional<zendnn_primitive_kind_t> kind = std::nullopt) {
  c10::SmallVector<Ref, 8> touched;
  // In the step itself: small kernels take little longer than a miss.
  c10::SmallVector<std::pair<size_t, Ref>, 8> places;
  c10::SmallVector<std::pair<size_t, size_t>, 8> lists; // where each begins
  c10::SmallVector<int64_t, 32> numbers;                // of all of them
  for (const auto& pointer : pointers) {
    if (pointer.numbers) {
      lists.emplace_back(pointer.offset, numbers.size());
      numbers.append(pointer.numbers->begin(), pointer.numbers->end());
    } else {
      places.emplace_back(pointer.offset, pointer.ref);
      touched.push_back(pointer.ref);
    }
  }
  builder.add_kernel(
      node,
      implementation,
      touched,
      [kernel, args, places, lists, numbers, otherwise = std::move(otherwise)](
          const Frame& frame) {
        auto call = args;
        for (const auto& [offset, ref] : places) {
          Pointer<Args>::set(call, offset, frame.at(ref));
        }
        for (const auto& [offset, first] : lists) {
          Pointer<Args>::set(call, offset, numbers.data() + first);
        }
        if constexpr (std::is_same_v<Result, bool>) {
          if (!kernel(call)) {
            TORCH_CHECK_INDEX(otherwise, kOutOfRange);
            otherwise(frame);
          }
        } else {
          kernel(call);
        }
      },
      flops,
      kind);
}

} // namespace at::native::zendnn::plan
