// A row of the table of overrides: the operator, what its kernel needs, why the
// kernel does not take a problem, the kernel, and torch's, which serves then.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/zendnn/Context.h>
#include <ATen/native/zendnn/Events.h>
#include <ATen/native/zendnn/kernels/types.h>
#include <torch/library.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace at::native::zendnn::cpu {

// Why torch's kernel serves; null where ours does. Says nothing of errors:
// torch's kernel reports them.
using Reason = const char*;

namespace why {
inline constexpr Reason kOff = "ZenDNN is switched off";
inline constexpr Reason kNoVectors = "the CPU lacks what all kernels need";
inline constexpr Reason kType = "a type that ZenDNN does not compute in here";
inline constexpr Reason kTypes = "operands whose types differ";
inline constexpr Reason kLayout = "an operand that is not plain memory";
inline constexpr Reason kOrder = "elements that do not lie in order";
inline constexpr Reason kEmpty = "no elements";
inline constexpr Reason kSizes = "sizes that do not go together";
inline constexpr Reason kParameter =
    "a parameter of another type, shape or layout";
inline constexpr Reason kResult =
    "a result that the kernel cannot be written to";
inline constexpr Reason kOverlap = "a result that overlaps an operand";
inline constexpr Reason kWindow = "a window that ZenDNN cannot describe";
inline constexpr Reason kStrides =
    "one volume with channels last, whose result may have other strides";
inline constexpr Reason kWatched =
    "somebody watches, records or changes the operators it is made of";
inline constexpr Reason kRounds =
    "torch may multiply float32 in bfloat16, as was asked for";
inline constexpr Reason kNoGain = "torch's kernel is as fast on this CPU";
} // namespace why

// The name of an operator as a template's argument.
template <size_t kLength>
struct Name {
  consteval Name() = default;
  consteval Name(const char (&literal)[kLength]) {
    std::copy_n(literal, kLength, text);
  }
  char text[kLength]{};
};

template <size_t kLeft, size_t kRight>
consteval auto operator+(const Name<kLeft>& left, const char (&right)[kRight]) {
  Name<kLeft + kRight - 1> both;
  std::copy_n(right, kRight, std::copy_n(left.text, kLeft - 1, both.text));
  return both;
}

// ZenDNN's primitives; vectors, for kernels of our own; or not even to be
// switched on.
enum class Needs : uint8_t { primitives, vectors, nothing };

inline bool has_vectors() {
  static const bool usable = kernels::isa()[0] == 'a';
  return usable;
}

// Out of line, as what is rare: inlined, it keeps the kernels' calls from
// being.
std::unique_ptr<Operation> begin_operation(const char* name, Reason reason);
void describe(Operation& of, const Tensor& t);
void describe(Operation& of, const std::optional<Tensor>& t);
void describe(Operation& of, TensorList tensors);

// Where somebody listens, the operation that an event will tell of.
template <class... Operands>
[[gnu::cold, gnu::noinline]] std::unique_ptr<Operation>
told(const char* name, Reason reason, const Operands&... operands) {
  auto operation = begin_operation(name, reason);
  const auto add = [&](const auto& operand) {
    if constexpr (requires { describe(*operation, operand); }) {
      describe(*operation, operand);
    }
  };
  (add(operands), ...);
  return operation;
}

template <
    Name kName,
    Needs kNeeds,
    auto kWhyNot,
    auto kRun,
    auto kStock,
    class Signature = decltype(kStock)>
struct Row;

template <
    Name kName,
    Needs kNeeds,
    auto kWhyNot,
    auto kRun,
    auto kStock,
    class Result,
    class... Operands>
struct Row<kName, kNeeds, kWhyNot, kRun, kStock, Result (*)(Operands...)> {
  static Reason why_not(const std::remove_reference_t<Operands>&... operands) {
    if constexpr (kNeeds == Needs::vectors) {
      if (!has_vectors()) {
        return why::kNoVectors;
      }
    }
    if (kNeeds != Needs::nothing && !enabled()) {
      return why::kOff;
    }
    return kWhyNot(operands...);
  }

  // Operands that are passed by value are as cheap to copy.
  static Result call(Operands... operands) {
    const Reason reason = why_not(operands...);
    std::unique_ptr<Operation> operation;
    if (listening()) {
      operation = told(kName.text, reason, operands...);
    }
    return reason == nullptr ? kRun(operands...) : kStock(operands...);
  }

  static void add(torch::Library& m) {
    m.impl(kName.text, TORCH_FN(call));
  }
  static constexpr const char* name = kName.text;
};

// Those that were added, for tests.
std::vector<const char*>& overridden();

template <class... Rows>
void add_rows(torch::Library& m) {
  (Rows::add(m), ...);
  (overridden().push_back(Rows::name), ...);
}

} // namespace at::native::zendnn::cpu
