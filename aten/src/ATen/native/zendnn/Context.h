// The switches that decide, at run time, whether and how ZenDNN is used.
#pragma once

#include <c10/macros/Export.h>

#include <atomic>
#include <cstdint>

namespace at::native::zendnn {

namespace switches {
C10_EXPORT extern std::atomic<bool> enabled;
} // namespace switches

// False sends every overridden operator to torch's own kernel. Each asks first.
inline bool enabled() {
  return switches::enabled.load(std::memory_order_relaxed);
}
C10_EXPORT void set_enabled(bool value);

// Asks the matrix products for results that are the same from run to run.
C10_EXPORT bool deterministic();
C10_EXPORT void set_deterministic(bool value);

} // namespace at::native::zendnn
