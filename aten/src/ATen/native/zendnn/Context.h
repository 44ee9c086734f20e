// The run-time switches of ZenDNN.
#pragma once

#include <c10/macros/Export.h>

#include <atomic>
#include <cstdint>

namespace at::native::zendnn {

namespace switches {
C10_EXPORT extern std::atomic<bool> enabled;
} // namespace switches

// When false, every overridden operator falls back to torch's own kernel.
inline bool enabled() {
  return switches::enabled.load(std::memory_order_relaxed);
}
C10_EXPORT void set_enabled(bool value);

// Requests reproducible results of matrix products.
C10_EXPORT bool deterministic();
C10_EXPORT void set_deterministic(bool value);

} // namespace at::native::zendnn
