#include <ATen/native/zendnn/Context.h>

#include <atomic>

namespace at::native::zendnn {

namespace {
std::atomic<bool> enabled_{true};
std::atomic<bool> deterministic_{false};
} // namespace

bool enabled() {
  return enabled_.load(std::memory_order_relaxed);
}

void set_enabled(bool value) {
  enabled_.store(value, std::memory_order_relaxed);
}

bool deterministic() {
  return deterministic_.load(std::memory_order_relaxed);
}

void set_deterministic(bool value) {
  deterministic_.store(value, std::memory_order_relaxed);
}

} // namespace at::native::zendnn
