// The memory that freed CPU tensors leave to those that come after them.
#pragma once

#include <c10/macros/Export.h>

#include <cstdint>

namespace at::native::zendnn {

// Bytes of freed blocks that are kept, and the most that may be kept:
// ZENDNN_ALLOCATOR_CACHE, or an eighth of the memory that this process may use.
// At 0 nothing is kept and every allocation is stock torch's.
C10_EXPORT int64_t memory_cached();
C10_EXPORT int64_t memory_cache_limit();
C10_EXPORT void set_memory_cache_limit(int64_t bytes);

// Gives everything that is kept back to the system.
C10_EXPORT void empty_cache();

} // namespace at::native::zendnn
