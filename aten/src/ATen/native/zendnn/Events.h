// One stream of events: for each operator, which way it went and why. Counters,
// verbose lines, what Python records, warnings and the profiler's names are
// views of it. Where nobody listens, an operator costs a load and a branch.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/macros/Export.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace at::native::zendnn {

// A plan's step, ZenDNN for one operator of a model, or torch's own kernel.
enum class Route : uint8_t { plan, eager, torch };

struct Event {
  // As torch names it; of a plan's step, the model's operators that it does.
  std::string operation;
  Route route = Route::eager;
  std::string reason{}; // why it is torch's
  // What ran: the kind of each primitive or kernel and who implements it.
  std::string implementation{};
  std::vector<std::vector<int64_t>> shapes{}; // of its operands
  std::optional<ScalarType> dtype{};          // of the first of them
  double milliseconds = 0;
  int64_t step = -1;       // its number in a plan, if it is one's
  bool has_kernel = false; // and not only primitives, which libzendnn prints
};

// Who listens, a bit each; see listening().
enum Listener : uint32_t { kVerboseLines = 1, kRecordings = 2 };
extern std::atomic<uint32_t> listeners __attribute__((visibility("hidden")));
inline bool listening() {
  return listeners.load(std::memory_order_relaxed) != 0;
}
void set_listening(Listener who, bool listens);

// Tells all views of an event.
void tell(const Event& event);

// The view that is a warning: whether somebody listens or not, the event is
// told and torch warns of its operation and reason.
void warn(const Event& event);

// Counts an execution on a kernel of ours, as libzendnn counts its primitives'.
void count_kernel(int primitive_kind);

// An operator that runs in this thread, until this goes. What it executes is
// its implementation, unless that is given.
class Operation {
 public:
  explicit Operation(Event event);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  void add_operand(IntArrayRef sizes, ScalarType dtype);

 private:
  friend int hear_execution(int primitive_kind, const char* implementation);
  friend void leave_to_torch(const char* reason);

  Event event_;
  bool given_; // the implementation
  Operation* outer_;
  std::chrono::steady_clock::time_point start_;
};

// Of the operator that runs: a kernel of ours that began finds that it cannot.
void leave_to_torch(const char* reason);

// What operators came to while it lived, in all threads, in the order in which
// they ended.
class C10_EXPORT Recording {
 public:
  struct Log;

  Recording();
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // Those since the last call.
  std::vector<Event> take();
  void stop();

 private:
  std::shared_ptr<Log> log_;
};

C10_EXPORT const char* name_of(Route route);

} // namespace at::native::zendnn
