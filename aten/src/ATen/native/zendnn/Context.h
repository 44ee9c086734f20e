// The switches that decide, at run time, whether and how ZenDNN is used.
#pragma once

#include <c10/macros/Export.h>

#include <cstdint>

namespace at::native::zendnn {

// False sends every overridden operator to torch's own kernel.
C10_EXPORT bool enabled();
C10_EXPORT void set_enabled(bool value);

// Asks the matrix products for results that are the same from run to run.
C10_EXPORT bool deterministic();
C10_EXPORT void set_deterministic(bool value);

} // namespace at::native::zendnn
