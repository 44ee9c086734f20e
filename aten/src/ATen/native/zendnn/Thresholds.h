// Sizes at which another implementation takes over: the table of thresholds.
#pragma once

#include <ATen/native/zendnn/ThresholdRows.h>
#include <c10/macros/Export.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace at::native::zendnn {

inline int64_t value_of(Threshold threshold) {
  return threshold_rows[static_cast<size_t>(threshold)].value.load(
      std::memory_order_relaxed);
}

// For tests and benchmarks: the values by name, and another value for problems
// and plans to come. Raises for an unknown name.
C10_EXPORT std::map<std::string, int64_t> thresholds();
C10_EXPORT void set_threshold(const std::string& name, int64_t value);

} // namespace at::native::zendnn
