// A route: which calls run on torch's own kernels although ZenDNN takes them.
// It is the input side of the stream of events (Events.h). Without a route, an
// operator costs a load and a branch.
#pragma once

#include <c10/macros/Export.h>
#include <c10/util/ArrayRef.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace at {
struct StepCallbacks;
} // namespace at

namespace at::native::zendnn::route {

// The reason in events and explanations.
inline constexpr const char* kReason = "the route says torch";

// The sizes of one tensor; a negative one stands for any.
using Pattern = std::vector<int64_t>;

// A choice for calls of some operators.
struct Rule {
  // Names with overloads, such as aten::add.Tensor, or zendnn:: and a region.
  std::vector<std::string> operators;
  // Of the first tensors of the call; nothing stands for any tensor.
  std::vector<std::optional<Pattern>> shapes{};
  bool offload = true; // to ZenDNN, where it takes the call
};

struct Table {
  std::vector<Rule> rules{}; // the first that matches decides
  // A choice for each call, in order, of the operators that it names. Behind
  // the last comes the first.
  std::vector<Rule> chart{};
  bool otherwise = true; // offload
};

// Sets the route of the process; nothing clears it.
C10_EXPORT void set(std::optional<Table> table);
// Lets the next call be the first of the chart.
C10_EXPORT void restart();

extern std::atomic<uint64_t> version __attribute__((visibility("hidden")));
inline bool is_set() {
  return version.load(std::memory_order_relaxed) != 0;
}

// ---- Operators --------------------------------------------------------------
enum class Says : uint8_t { nothing, zendnn, torch };

// Whether the operator that this thread runs goes to torch.
bool says_torch();

// What this thread runs during the object's lifetime is decided, and no call of
// a chart.
class Decided {
 public:
  explicit Decided(Says says);
  ~Decided();
  Decided(const Decided&) = delete;
  Decided& operator=(const Decided&) = delete;

 private:
  Says says_;
  bool is_inside_;
};

// ---- Plans ------------------------------------------------------------------
// The route, and the place in its chart, that a plan is built for.
struct Moment {
  uint64_t version = 0;
  size_t place = 0;
  bool operator==(const Moment&) const = default;
};
// Version 0 where no route is set.
Moment now();

struct Lookup; // Route.cpp

// What a route says of a region and its nodes, which it is asked in order.
class Region {
 public:
  explicit Region(const Moment& at);

  using Shapes = std::vector<c10::IntArrayRef>;
  bool leaves(const std::string& name, const Shapes& shapes) const;
  // Of a node that computes these of the model's operators, joined by '+'.
  bool leaves_node(std::string_view operators, const Shapes& shapes);
  // The calls of the chart so far.
  size_t calls() const {
    return calls_;
  }

 private:
  std::shared_ptr<const Lookup> route_; // null where none is set
  size_t place_, calls_ = 0;
};

// A region with so many calls of the chart has run.
void advance(size_t calls);
// Whether ranges would be heard by the route alone, which knows steps anyway.
bool is_alone(const at::StepCallbacks& callbacks);

} // namespace at::native::zendnn::route
