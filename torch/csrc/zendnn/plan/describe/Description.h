// A region as docs/plan.md writes it, read into a list of nodes.
//
// A plan owns its description, which never changes and needs no lock. A build
// that leaves nodes to torch works on a copy of its own.
#pragma once

#include <torch/csrc/zendnn/plan/describe/Ops.h>

#include <c10/util/SmallVector.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace at::native::zendnn::plan {

// The first line of a description. Saved files carry it.
inline constexpr std::string_view kHeader = "zendnn-plan 3";

// Why a plan does not take a region or the shapes at hand.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};
[[noreturn]] void refuse(const std::string& why);

struct Operand {
  enum class Kind : uint8_t { none, value, number };
  Kind kind = Kind::none;
  int64_t index = 0; // of a value; or the number itself

  explicit operator bool() const {
    return kind != Kind::none;
  }
};

inline Operand value_operand(int64_t value) {
  return {Operand::Kind::value, value};
}

// Which operand's size a combination of two must keep, as an operator in place
// keeps its target's.
enum class Keeps { neither, first, second };
inline Keeps first_if(bool in_place) {
  return in_place ? Keeps::first : Keeps::neither;
}

// What descriptions call an enumerator.
template <typename E>
  requires(!kNamesOf<E>.empty())
std::string name_of(E value) {
  for (const auto& known : kNamesOf<E>) {
    if (known.value == value) {
      return std::string(known.name);
    }
  }
  return "none";
}

// A function of each element or, with an operand, a combination with it.
struct PostOp {
  kernels::Eltwise function = kernels::Eltwise::none;
  float alpha = 0, beta = 0;
  kernels::Binary combination{};
  int operand = -1;             // of the node
  Keeps keeps = Keeps::neither; // first: the size so far

  bool is_binary() const {
    return operand >= 0;
  }
  bool is(kernels::Eltwise other) const {
    return !is_binary() && function == other;
  }
  bool is(kernels::Binary other) const {
    return is_binary() && combination == other;
  }
  std::string name() const {
    return is_binary() ? name_of(combination) : name_of(function);
  }
};

struct Fallback; // run/TorchFallback.h

struct Node {
  Op op;
  std::vector<Operand> inputs{};
  std::vector<int64_t> outputs{}; // values
  Attributes attributes{};        // those of the operator's family
  std::vector<PostOp> post{};
  std::string label{};
  // What torch computes instead of the plan.
  std::shared_ptr<Fallback> fallback{};

  // The attributes, of a node of this family.
  template <typename Family>
  const Family& as() const {
    return std::get<Family>(attributes);
  }
  int64_t output() const {
    return outputs.front();
  }
  // The values among the operands.
  c10::SmallVector<int64_t, 8> reads() const;
};

// Optimisations of memory and layouts that a description can switch off.
inline constexpr std::array<std::string_view, 5> kPasses{
    "choose_layout",  // time blocks of channels beside channels-last
    "join_in_place",  // write the parts of a concatenation where they belong
    "reuse_operands", // write results over operands that nobody needs any more
    "fuse_pointwise", // make one step of a chain of functions of each element
    "share_memory"};  // let buffers whose lives do not overlap share memory

struct Description {
  struct Input {
    int64_t value;
    bool is_number;
    std::optional<c10::ScalarType> dtype{}; // that passes have assumed
  };
  std::unordered_set<std::string> without{}; // passes of kPasses
  // Seconds for timing candidates; nothing for ZENDNN_TUNING_BUDGET's.
  std::optional<double> tuning_budget{};
  std::vector<Input> inputs{};
  std::vector<int64_t> constants{}; // the value that each constant is
  std::vector<Node> nodes{};
  std::vector<int64_t> outputs{};
  int64_t values = 0; // are numbered from 0
};

// The parts of a node as a description writes them. A value is called by its
// number.
std::string text_of(const Operand& operand);
std::string text_of(const PostOp& post);
// The attributes that the operator requires, or that differ from its defaults.
std::vector<std::pair<std::string_view, std::string>> attributes_of(
    const Node& node);
// Returns the text that parse() reads.
std::string write(const Description& region);

// Throws Refused, with the line, when the text is not a description of this
// version, or names an operator, an attribute, an algorithm or a dtype that
// there is not.
Description parse(const std::string& text);

} // namespace at::native::zendnn::plan
