#include <ATen/native/zendnn/Events.h>

#include <ATen/native/zendnn/Cpu.h>
#include <ATen/native/zendnn/Info.h>
#include <oneapi/zendnn/zendnn_debug.h>
#include <third_party/zendnn/execution_counters.h>

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <sstream>
#include <utility>

namespace at::native::zendnn {
namespace {

constexpr const char* kKernel = "kernel:"; // prefix of our kernels' names

thread_local Operation* innermost = nullptr;

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now() - start)
      .count();
}

void append(std::string& all, std::string_view more) {
  if (!more.empty()) {
    all.append(all.empty() ? "" : " + ").append(more);
  }
}

// Float 64x256:256
std::string operands_of(const Event& event) {
  std::ostringstream text;
  text << (event.dtype ? c10::toString(*event.dtype) : "") << ' ';
  for (size_t i = 0; i < event.shapes.size(); ++i) {
    text << (i == 0 ? "" : ":");
    const auto& sizes = event.shapes[i];
    for (size_t j = 0; j < sizes.size(); ++j) {
      text << (j == 0 ? "" : "x") << sizes[j];
    }
  }
  return text.str();
}

// ---- Verbose lines

// Commas separate the words of a line.
std::string as_word(std::string text) {
  std::replace(text.begin(), text.end(), ',', ';');
  return text;
}

// Prints the lines that libzendnn lacks: steps, our kernels and, at the level
// of creations, torch's kernels.
void print(const Event& event) {
  if (event.step >= 0) {
    std::printf(
        "zendnn_verbose,plan,%lld,%s,%s,%g\n",
        static_cast<long long>(event.step),
        event.implementation.c_str(),
        event.operation.c_str(),
        event.milliseconds);
  } else if (
      event.has_kernel || (event.route == Route::torch && verbose() > 1)) {
    std::printf(
        "zendnn_verbose,%s,%s,%s,%s,%g\n",
        name_of(event.route),
        as_word(event.has_kernel ? event.implementation : event.reason).c_str(),
        event.operation.c_str(),
        operands_of(event).c_str(),
        event.milliseconds);
  }
  std::fflush(stdout);
}

} // namespace

// ---- Recordings

struct Recording::Log {
  std::mutex mutex;
  std::vector<Event> events;
};

namespace {

struct Logs {
  std::mutex mutex;
  std::vector<std::shared_ptr<Recording::Log>> all;
};

Logs& logs() {
  static auto* const made = new Logs; // never destroyed
  return *made;
}

} // namespace

Recording::Recording() : log_(std::make_shared<Log>()) {
  const std::lock_guard lock(logs().mutex);
  logs().all.push_back(log_);
  set_listening(kRecordings, true);
}

Recording::~Recording() {
  stop();
}

void Recording::stop() {
  const std::lock_guard lock(logs().mutex);
  std::erase(logs().all, log_);
  set_listening(kRecordings, !logs().all.empty());
}

std::vector<Event> Recording::take() {
  const std::lock_guard lock(log_->mutex);
  return std::exchange(log_->events, {});
}

// ---- Notification

std::atomic<uint32_t> listeners{0};

// Returning 0 leaves the execution's verbose line to libzendnn.
int hear_execution(int primitive_kind, const char* implementation) {
  auto* const operation = innermost;
  if (operation == nullptr) {
    return 0;
  }
  auto& event = operation->event_;
  const std::string_view by = implementation;
  event.has_kernel |= by.starts_with(kKernel);
  if (!operation->given_) {
    append(
        event.implementation,
        std::string(zendnn_prim_kind2str(
                        static_cast<zendnn_primitive_kind_t>(primitive_kind)))
            .append(" ")
            .append(by));
  }
  return static_cast<int>(event.route == Route::plan && verbose() < 2);
}

void set_listening(Listener who, bool listens) {
  const auto before =
      listens ? listeners.fetch_or(who) : listeners.fetch_and(~who);
  const auto now = listens ? before | who : before & ~who;
  zendnn_hear_executions(now != 0 ? hear_execution : nullptr);
}

void tell(const Event& event) {
  const auto who = listeners.load(std::memory_order_relaxed);
  if ((who & kVerboseLines) != 0) {
    print(event);
  }
  if ((who & kRecordings) != 0) {
    const std::lock_guard lock(logs().mutex);
    for (const auto& log : logs().all) {
      const std::lock_guard writing(log->mutex);
      log->events.push_back(event);
    }
  }
}

void warn(const Event& event) {
  tell(event);
  TORCH_WARN("ZenDNN plan ", event.operation, ' ', event.reason);
}

void count_kernel(int primitive_kind) {
  static const std::string name = std::string(kKernel) + this_cpu().kernels;
  zendnn_count_execution(primitive_kind, name.c_str());
}

Operation::Operation(Event event)
    : event_(std::move(event)),
      given_(!event_.implementation.empty()),
      outer_(std::exchange(innermost, this)),
      start_(std::chrono::steady_clock::now()) {}

Operation::~Operation() {
  event_.milliseconds = milliseconds_since(start_);
  innermost = outer_;
  // Operators inside one of torch's have their own events.
  if (outer_ != nullptr && !outer_->given_ &&
      outer_->event_.route != Route::torch) {
    append(outer_->event_.implementation, event_.implementation);
  }
  try {
    tell(event_);
  } catch (const std::exception&) { // out of memory: the event is lost
  }
}

void Operation::add_operand(IntArrayRef sizes, ScalarType dtype) {
  event_.shapes.push_back(sizes.vec());
  event_.dtype = event_.dtype.value_or(dtype);
}

void leave_to_torch(const char* reason) {
  if (innermost != nullptr) {
    auto& event = innermost->event_;
    event.route = Route::torch;
    event.reason = reason;
    event.implementation.clear();
    event.has_kernel = false;
  }
}

const char* name_of(Route route) {
  switch (route) {
    case Route::plan:
      return "plan";
    case Route::eager:
      return "eager";
    default:
      return "torch";
  }
}

namespace {
// The environment may request verbose lines before any call.
[[maybe_unused]] const bool heard =
    (set_listening(kVerboseLines, verbose() > 0), true);
} // namespace

} // namespace at::native::zendnn
