// A row of the table of overrides: the operator, the needs of its kernel, the
// reason for a refusal, the kernel, and torch's kernel as the fallback.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/zendnn/Context.h>
#include <ATen/native/zendnn/Cpu.h>
#include <ATen/native/zendnn/Events.h>
#include <ATen/native/zendnn/Route.h>
#include <torch/library.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace at::native::zendnn::cpu {

// Why torch's kernel runs; null if ours does. It covers no errors, which
// torch's kernel raises.
using Reason = const char*;

namespace why {
inline constexpr Reason kOff = "ZenDNN is switched off";
inline constexpr Reason kNoVectors = "the CPU lacks required instructions";
inline constexpr Reason kType = "a dtype that ZenDNN does not support here";
inline constexpr Reason kTypes = "operands with different dtypes";
inline constexpr Reason kLayout = "an operand without plain memory";
inline constexpr Reason kOrder = "elements that are not in order";
inline constexpr Reason kEmpty = "no elements";
inline constexpr Reason kSizes = "sizes that do not match";
inline constexpr Reason kParameter =
    "a parameter of another dtype, shape or layout";
inline constexpr Reason kResult = "a result that the kernel cannot write";
inline constexpr Reason kOverlap = "a result that overlaps an operand";
inline constexpr Reason kWindow = "a window that ZenDNN does not support";
inline constexpr Reason kStrides =
    "a single channels-last volume, whose result may have other strides";
inline constexpr Reason kWatched =
    "a mode, transform, autocast or autograd needs the composite's operators";
inline constexpr Reason kRounds =
    "a setting allows torch to multiply float32 in bfloat16";
inline constexpr Reason kNoGain = "torch's kernel is as fast on this CPU";
} // namespace why

// The name of an operator as a template argument.
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

// ZenDNN's primitives, vectors (for our own kernels), or nothing: not even the
// switch and the route.
enum class Needs : uint8_t { primitives, vectors, nothing };

// Out of line, since it is rare: inlined, it would prevent inlining of the
// kernels' calls.
std::unique_ptr<Operation> begin_operation(const char* name, Reason reason);
void describe(Operation& of, const Tensor& t);
void describe(Operation& of, const std::optional<Tensor>& t);
void describe(Operation& of, TensorList tensors);

// The operation of a future event, for listeners.
template <class... Operands>
[[gnu::cold, gnu::noinline]] std::unique_ptr<Operation>
operation_of(const char* name, Reason reason, const Operands&... operands) {
  std::unique_ptr<Operation> operation;
  {
    const Overhead own;
    operation = begin_operation(name, reason);
    const auto add = [&](const auto& operand) {
      if constexpr (requires { describe(*operation, operand); }) {
        describe(*operation, operand);
      }
    };
    (add(operands), ...);
  }
  operation->start();
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
      if (!uses(Isa::avx2)) {
        return why::kNoVectors;
      }
    }
    if constexpr (kNeeds != Needs::nothing) {
      if (!enabled()) {
        return why::kOff;
      }
      if (route::is_set() && route::says_torch()) {
        return route::kReason;
      }
    }
    return kWhyNot(operands...);
  }

  // Operands that torch passes by value are cheap to copy.
  static Result call(Operands... operands) {
    const Reason reason = why_not(operands...);
    std::unique_ptr<Operation> operation;
    if (listening()) {
      operation = operation_of(kName.text, reason, operands...);
    }
    return reason == nullptr ? kRun(operands...) : kStock(operands...);
  }

  static void add(torch::Library& m) {
    m.impl(kName.text, TORCH_FN(call));
  }
  static constexpr const char* name = kName.text;
};

// The names of the added rows, for tests.
std::vector<const char*>& overridden();

template <class... Rows>
void add_rows(torch::Library& m) {
  (Rows::add(m), ...);
  (overridden().push_back(Rows::name), ...);
}

} // namespace at::native::zendnn::cpu
