// Memory that plans take: what they keep, and what a running one has its
// intermediate results in.
#pragma once

#include <c10/macros/Export.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace at::native::zendnn::plan {

constexpr int64_t kAlignment = 64;

// Memory to keep, aligned and not initialised, from torch's CPU allocator.
// Throws bad_alloc where there is none.
std::shared_ptr<void> allocate(int64_t bytes);

// A buffer that is needed from the step `first` up to and including `last`.
struct Lifetime {
  int64_t bytes;
  int64_t first, last;
  int64_t offset = -1; // what lay_out finds
};

// Gives each buffer an offset such that no two that live at the same time
// overlap, largest buffers first, each at the lowest place that is free for its
// whole life (greedy by size: Pisarchyk and Lee, 2020). Returns the bytes
// needed.
C10_EXPORT int64_t lay_out(std::vector<Lifetime>& buffers);

} // namespace at::native::zendnn::plan
