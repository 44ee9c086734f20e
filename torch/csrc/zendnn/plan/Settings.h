// What users can ask and tell all plans.
#pragma once

#include <c10/macros/Export.h>

#include <cstddef>
#include <cstdint>

namespace at::native::zendnn::plan {

// How many input shapes a plan keeps executables for:
// ZENDNN_PLAN_CACHE_CAPACITY, 32 unless set.
C10_EXPORT size_t plan_cache_capacity();
C10_EXPORT void set_plan_cache_capacity(int64_t entries);

// Forgets which candidates were chosen in this process; the file that
// ZENDNN_TUNING_CACHE names stays. For tests.
C10_EXPORT void forget_choices();

} // namespace at::native::zendnn::plan
