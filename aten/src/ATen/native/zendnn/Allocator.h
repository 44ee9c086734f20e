// The cache of freed CPU tensors' memory.
#pragma once

#include <c10/macros/Export.h>

#include <cstdint>

namespace at::native::zendnn {

// Cached bytes of freed blocks, and their limit: ZENDNN_ALLOCATOR_CACHE, or an
// eighth of the memory that this process may use. At 0 nothing is cached, and
// stock torch makes every allocation.
C10_EXPORT int64_t memory_cached();
C10_EXPORT int64_t memory_cache_limit();
C10_EXPORT void set_memory_cache_limit(int64_t bytes);

// Returns the cached blocks to the system.
C10_EXPORT void empty_cache();

} // namespace at::native::zendnn
