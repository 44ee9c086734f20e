#include <ATen/native/zendnn/Context.h>

#include <ATen/native/zendnn/Environment.h>

namespace at::native::zendnn {

std::atomic<bool> switches::enabled{read(variables::kProcessMode) == "1"};

namespace {
std::atomic<bool> deterministic_{false};
} // namespace

void set_enabled(bool value) {
  switches::enabled.store(value, std::memory_order_relaxed);
}

bool deterministic() {
  return deterministic_.load(std::memory_order_relaxed);
}

void set_deterministic(bool value) {
  deterministic_.store(value, std::memory_order_relaxed);
}

} // namespace at::native::zendnn
