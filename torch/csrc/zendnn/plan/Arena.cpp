#include <torch/csrc/zendnn/plan/Arena.h>

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <utility>

namespace at::native::zendnn::plan {
namespace {

int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

} // namespace

std::shared_ptr<void> allocate(int64_t bytes) {
  auto memory = std::make_shared<c10::DataPtr>();
  try {
    *memory = c10::GetCPUAllocator()->allocate(static_cast<size_t>(bytes));
  } catch (const c10::Error&) {
    throw std::bad_alloc();
  }
  auto* data = memory->get();
  return {std::move(memory), data};
}

int64_t lay_out(std::vector<Lifetime>& buffers) {
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return buffers[a].bytes > buffers[b].bytes;
  });
  std::vector<const Lifetime*> placed; // by offset
  int64_t total = 0;
  for (const auto index : order) {
    auto& buffer = buffers[index];
    const auto bytes = aligned(std::max<int64_t>(buffer.bytes, 1));
    int64_t offset = 0;
    for (const auto* other : placed) {
      if (other->last < buffer.first || buffer.last < other->first) {
        continue;
      }
      if (offset + bytes <= other->offset) {
        break;
      }
      offset = std::max(offset, aligned(other->offset + other->bytes));
    }
    buffer.offset = offset;
    total = std::max(total, offset + bytes);
    placed.insert(
        std::upper_bound(
            placed.begin(),
            placed.end(),
            offset,
            [](int64_t at, const Lifetime* other) {
              return at < other->offset;
            }),
        &buffer);
  }
  return total;
}

} // namespace at::native::zendnn::plan
