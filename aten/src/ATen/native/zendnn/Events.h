// One stream of events: the route of each operator, with a reason. Counters,
// verbose lines, Python's recordings, warnings and the profiler's names are
// views of it. Without a listener, an operator costs a load and a branch.
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

// A plan's step, ZenDNN for a single operator, or torch's own kernel.
enum class Route : uint8_t { plan, eager, torch };

struct Event {
  // torch's name; for a plan's step, the model's operators that it computes.
  std::string operation;
  Route route = Route::eager;
  std::string reason{}; // why torch's kernel ran
  // The kind and the implementation of each primitive or kernel that ran.
  std::string implementation{};
  std::vector<std::vector<int64_t>> shapes{}; // of its operands
  std::optional<ScalarType> dtype{};          // of its first operand
  double milliseconds = 0;
  int64_t step = -1;       // its number in a plan, or -1
  bool has_kernel = false; // ours; libzendnn prints only primitives
};

// The listeners, one bit each; see listening().
enum Listener : uint32_t { kVerboseLines = 1, kRecordings = 2 };
extern std::atomic<uint32_t> listeners __attribute__((visibility("hidden")));
inline bool listening() {
  return listeners.load(std::memory_order_relaxed) != 0;
}
void set_listening(Listener who, bool listens);

// Notifies all views of an event.
void tell(const Event& event);

// Notifies all views, and warns of the event's operation and reason, even
// without listeners.
void warn(const Event& event);

// Counts an execution of our kernel, as libzendnn counts its primitives.
void count_kernel(int primitive_kind);

// An operator that runs in this thread during this object's lifetime.
// Executions in it become its implementation, unless that is given.
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

// Our kernel of the running operator finds that it must fall back.
void leave_to_torch(const char* reason);

// The events of all threads during its lifetime, in the order in which
// operators ended.
class C10_EXPORT Recording {
 public:
  struct Log;

  Recording();
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // The events since the last call.
  std::vector<Event> take();
  void stop();

 private:
  std::shared_ptr<Log> log_;
};

C10_EXPORT const char* name_of(Route route);

} // namespace at::native::zendnn
