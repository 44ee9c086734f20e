#include <ATen/native/zendnn/Events.h>

#include <ATen/native/zendnn/Cpu.h>
#include <ATen/native/zendnn/Environment.h>
#include <ATen/native/zendnn/Info.h>
#include <ATen/native/zendnn/Logs.h>
#include <oneapi/zendnn/zendnn_debug.h>
#include <third_party/zendnn/execution_counters.h>

#include <ATen/EmptyTensor.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <optional>
#include <sstream>
#include <utility>

namespace at::native::zendnn {
namespace {

constexpr const char* kKernel = "kernel:"; // prefix of our kernels' names

constexpr double kNanosecondsPerMillisecond = 1e6;

thread_local Operation* innermost = nullptr;
thread_local double spent = 0; // milliseconds, for listeners
thread_local bool is_recorded = true;

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void start_clock(Event& event) {
  event.overhead = spent;
  event.start = now();
}

void stop_clock(Event& event) {
  event.milliseconds =
      static_cast<double>(now() - event.start) / kNanosecondsPerMillisecond;
  event.overhead = spent - event.overhead;
  event.thread = at::RecordFunction::currentThreadId();
}

void append(std::string& all, std::string_view more) {
  if (!more.empty()) {
    all.append(all.empty() ? "" : " + ").append(more);
  }
}

// Float 64x256:256
std::string operands_of(const Event& event) {
  std::ostringstream text;
  const auto& operands = event.operands;
  text << (operands.empty() ? "" : c10::toString(operands[0].dtype)) << ' ';
  for (size_t i = 0; i < operands.size(); ++i) {
    text << (i == 0 ? "" : ":");
    const auto& sizes = operands[i].sizes;
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

// ---- torch's log

// For TORCH_CPP_LOG_LEVEL=INFO.
void log_event(const Event& event) {
  LOG(INFO) << "ZenDNN " << name_of(event.route) << ' ' << event.operation
            << " (" << operands_of(event) << "): "
            << (event.reason.empty() ? event.implementation : event.reason)
            << ", " << event.milliseconds << " ms";
}

} // namespace

// ---- Recordings

struct Recording::Log {
  bool ranges, arguments;
  std::mutex mutex;
  std::vector<Event> events;

  void add(Event event) {
    const std::lock_guard lock(mutex);
    events.push_back(std::move(event));
  }
};

namespace {

struct Logs {
  std::mutex mutex;
  std::vector<std::shared_ptr<Recording::Log>> all;
  std::optional<at::CallbackHandle> ranges; // while they are heard
};

Logs& logs() {
  static auto* const instance = new Logs; // never destroyed
  return *instance;
}

// ---- Ranges

// Like c10::toString, but without a stream, since every operator passes here.
std::string text_of(c10::OperatorName name) {
  if (!name.overload_name.empty()) {
    name.name.append(".").append(name.overload_name);
  }
  return std::move(name.name);
}

struct Range final : at::ObserverContext {
  Event event{.operation = "", .route = Route::none};
};

bool is_readable(const Tensor& t) {
  return t.defined() && !t.is_nested() &&
         !t.key_set().has(c10::DispatchKey::Python) &&
         !t.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

// The value without the elements of its tensors; None in the place of what is
// no tensor, number, text or list of such.
c10::IValue without_data(const c10::IValue& value) {
  if (value.isTensor()) {
    const auto& t = value.toTensor();
    return is_readable(t) && t.layout() == kStrided
               ? c10::IValue(Tensor(at::detail::empty_strided_meta(
                     t.sizes(), t.strides(), t.scalar_type())))
               : c10::IValue();
  }
  if (value.isList()) {
    c10::impl::GenericList list(c10::AnyType::get());
    for (const auto& element : value.toListRef()) {
      list.push_back(without_data(element));
    }
    return list;
  }
  return value.isScalar() || value.isString() || value.isDevice()
             ? value
             : c10::IValue();
}

std::unique_ptr<at::ObserverContext> begin_range(const at::RecordFunction& of) {
  if (!is_recorded) {
    return nullptr;
  }
  auto range = std::make_unique<Range>();
  {
    const Overhead own;
    auto name = of.operator_name();
    range->event.operation = name ? text_of(*std::move(name)) : of.name();
    if (of.needsInputs()) {
      for (const auto& input : of.inputs()) {
        range->event.arguments.push_back(without_data(input));
      }
    }
  }
  start_clock(range->event);
  return range;
}

void end_range(const at::RecordFunction& /*of*/, at::ObserverContext* context) {
  if (context != nullptr) {
    auto& event = static_cast<Range*>(context)->event;
    stop_clock(event);
    const Overhead own;
    tell(std::move(event));
  }
}

// Hears ranges as the logs want it. The caller holds the lock.
void hear_ranges(Logs& logs) {
  const auto any = [&](auto wants) {
    return std::any_of(logs.all.begin(), logs.all.end(), [=](const auto& log) {
      return (*log).*wants;
    });
  };
  if (logs.ranges) {
    at::removeCallback(*std::exchange(logs.ranges, std::nullopt));
  }
  if (any(&Recording::Log::ranges)) {
    logs.ranges =
        at::addGlobalCallback(at::RecordFunctionCallback(begin_range, end_range)
                                  .needsInputs(any(&Recording::Log::arguments))
                                  .scopes(
                                      {at::RecordScope::FUNCTION,
                                       at::RecordScope::BACKWARD_FUNCTION,
                                       at::RecordScope::USER_SCOPE}));
  }
}

} // namespace

Recording::Recording(bool ranges, bool arguments)
    : log_(std::make_shared<Log>()) {
  log_->ranges = ranges;
  log_->arguments = arguments;
  const std::lock_guard lock(logs().mutex);
  logs().all.push_back(log_);
  hear_ranges(logs());
  set_listening(kRecordings, true);
}

Recording::~Recording() {
  stop();
}

void Recording::stop() {
  const std::lock_guard lock(logs().mutex);
  std::erase(logs().all, log_);
  hear_ranges(logs());
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

void tell(Event event) {
  const auto who = listeners.load(std::memory_order_relaxed);
  if ((who & kVerboseLines) != 0) {
    print(event);
  }
  if ((who & kLog) != 0 && event.route != Route::none) {
    log_event(event);
  }
  if ((who & kRecordings) != 0 && is_recorded) {
    const std::lock_guard lock(logs().mutex);
    Recording::Log* last = nullptr; // the event is moved into it
    for (const auto& log : logs().all) {
      if (event.route != Route::none || log->ranges) {
        if (last != nullptr) {
          last->add(event);
        }
        last = log.get();
      }
    }
    if (last != nullptr) {
      last->add(std::move(event));
    }
  }
}

double spent_listening() {
  return spent;
}

bool set_recorded(bool recorded) {
  return std::exchange(is_recorded, recorded);
}

void warn(const Event& event) {
  tell(event);
  if (warns()) {
    TORCH_WARN("ZenDNN plan ", event.operation, ' ', event.reason);
  }
}

void count_kernel(int primitive_kind) {
  static const std::string name = std::string(kKernel) + this_cpu().kernels;
  zendnn_count_execution(primitive_kind, name.c_str());
}

Operation::Operation(Event event)
    : event_(std::move(event)),
      given_(!event_.implementation.empty()),
      outer_(std::exchange(innermost, this)) {
  start_clock(event_);
}

Operation::~Operation() {
  stop_clock(event_);
  innermost = outer_;
  const Overhead own;
  // Operators inside one of torch's have their own events.
  if (outer_ != nullptr && !outer_->given_ &&
      outer_->event_.route != Route::torch) {
    append(outer_->event_.implementation, event_.implementation);
  }
  try {
    tell(std::move(event_));
  } catch (const std::exception&) { // out of memory: the event is lost
  }
}

// Subclasses and tracers' tensors may have no readable sizes.
void Operation::add_operand(const Tensor& tensor) {
  if (is_readable(tensor)) {
    event_.operands.push_back(
        {tensor.sizes().vec(),
         tensor.layout() == kStrided ? tensor.strides().vec()
                                     : std::vector<int64_t>(),
         tensor.scalar_type()});
  }
}

void Operation::start() {
  start_clock(event_);
}

Overhead::Overhead() : start_(now()) {}

Overhead::~Overhead() {
  spent += static_cast<double>(now() - start_) / kNanosecondsPerMillisecond;
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
    case Route::torch:
      return "torch";
    default:
      return "";
  }
}

namespace {
// The environment may request lines and logs before any call. libzendnn reads
// ZENDNN_VERBOSE itself, which has words of its own.
[[maybe_unused]] const bool heard = [] {
  if (read(variables::kVerbose) == nullptr && verbose() > 0) {
    set_verbose(verbose());
  }
  set_listening(kVerboseLines, verbose() > 0);
  constexpr int kInfo = 0; // torch's number of the level
  set_listening(kLog, FLAGS_caffe2_log_level <= kInfo);
  return true;
}();
} // namespace

} // namespace at::native::zendnn
