// The switches that decide, at run time, whether and how ZenDNN is used.
#pragma once

#include <cstdint>

namespace at::native::zendnn {

// False sends every overridden operator to torch's own kernel.
bool enabled();
void set_enabled(bool value);

// Asks primitives for results that do not depend on the number of threads.
bool deterministic();
void set_deterministic(bool value);

} // namespace at::native::zendnn
