// One stream of events: the route of each operator, with a reason. Counters,
// verbose lines, torch's log, Python's recordings, warnings and the profiler's
// names are views of it. Without a listener, an operator costs a load and a
// branch.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/macros/Export.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace at::native::zendnn {

// A plan's step, ZenDNN for a single operator, torch's own kernel, or none: a
// range of torch's profiler, such as any operator, a region or its preparation.
enum class Route : uint8_t { plan, eager, torch, none };

struct TensorInfo {
  std::vector<int64_t> sizes, strides;
  ScalarType dtype;
};

struct Event {
  // torch's name; for a plan's step, the model's operators that it computes.
  std::string operation;
  Route route = Route::eager;
  std::string reason{}; // why torch's kernel ran
  // The kind and the implementation of each primitive or kernel that ran.
  std::string implementation{};
  std::vector<TensorInfo> operands{};
  // Of a range, where a recording wants them; tensors are stand-ins on the meta
  // device.
  std::vector<c10::IValue> arguments{};
  int64_t start = 0; // nanoseconds of a steady clock
  double milliseconds = 0;
  double overhead = 0;     // of milliseconds, those that listeners took
  uint64_t thread = 0;     // torch's number of it
  double flops = 0;        // of a step, where it counts them
  double bytes = 0;        // of a step's operands and results
  int64_t step = -1;       // its number in a plan, or -1
  bool has_kernel = false; // ours; libzendnn prints only primitives
};

// The listeners, one bit each; see listening().
enum Listener : uint32_t { kVerboseLines = 1, kRecordings = 2, kLog = 4 };
extern std::atomic<uint32_t> listeners __attribute__((visibility("hidden")));
inline bool listening() {
  return listeners.load(std::memory_order_relaxed) != 0;
}
void set_listening(Listener who, bool listens);

// Notifies all views of an event.
void tell(Event event);

// Notifies all views, and warns of the event's operation and reason, even
// without listeners.
void warn(const Event& event);

// Counts an execution of our kernel, as libzendnn counts its primitives.
void count_kernel(int primitive_kind);

// Whether recordings hear this thread. Returns whether they did.
C10_EXPORT bool set_recorded(bool recorded);

// The milliseconds that this thread has spent for listeners so far.
C10_EXPORT double spent_listening();

// What this thread does during the object's lifetime is done for listeners.
// These do not nest.
class Overhead {
 public:
  Overhead();
  ~Overhead();
  Overhead(const Overhead&) = delete;
  Overhead& operator=(const Overhead&) = delete;

 private:
  int64_t start_;
};

// An operator that runs in this thread during this object's lifetime.
// Executions in it become its implementation, unless that is given.
class Operation {
 public:
  explicit Operation(Event event);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  void add_operand(const Tensor& tensor);
  // Starts the clock anew, once the event is described.
  void start();

 private:
  friend int hear_execution(int primitive_kind, const char* implementation);
  friend void leave_to_torch(const char* reason);

  Event event_;
  bool given_; // the implementation
  Operation* outer_;
};

// Our kernel of the running operator finds that it must fall back.
void leave_to_torch(const char* reason);

// The events of all threads during its lifetime, in the order in which
// operators ended. Those of route none are heard with `ranges`; with
// `arguments` they have arguments, too.
class C10_EXPORT Recording {
 public:
  struct Log;

  explicit Recording(bool ranges = false, bool arguments = false);
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
