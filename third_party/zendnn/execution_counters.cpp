#include "third_party/zendnn/execution_counters.h"

#include <array>
#include <atomic>

namespace {

std::array<std::atomic<uint64_t>, zendnn_execution_kinds> executions{};
std::atomic<zendnn_listener_t> heard_by{nullptr};

bool is_kind(int kind) {
  return kind >= 0 && kind < zendnn_execution_kinds;
}

} // namespace

void zendnn_hear_executions(zendnn_listener_t listener) {
  heard_by.store(listener, std::memory_order_relaxed);
}

int zendnn_count_execution(int primitive_kind, const char* implementation) {
  if (is_kind(primitive_kind)) {
    executions[primitive_kind].fetch_add(1, std::memory_order_relaxed);
  }
  const auto listener = heard_by.load(std::memory_order_relaxed);
  return listener == nullptr ? 0 : listener(primitive_kind, implementation);
}

uint64_t zendnn_executions(int primitive_kind) {
  return is_kind(primitive_kind)
             ? executions[primitive_kind].load(std::memory_order_relaxed)
             : 0;
}

void zendnn_reset_executions(void) {
  for (auto& count : executions) {
    count.store(0, std::memory_order_relaxed);
  }
}
