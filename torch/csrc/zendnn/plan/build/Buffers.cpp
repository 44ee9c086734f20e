#include <torch/csrc/zendnn/plan/build/Buffers.h>

#include <algorithm>
#include <utility>

namespace at::native::zendnn::plan {
namespace {

int64_t aligned(int64_t bytes) {
  constexpr int64_t kAlignment = 64;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

} // namespace

int64_t Buffers::add(Buffer buffer, int64_t step) {
  buffer.first = buffer.last = step;
  buffers_.push_back(std::move(buffer));
  return static_cast<int64_t>(buffers_.size()) - 1;
}

void Buffers::touch(Ref ref, int64_t step) {
  if (ref) {
    auto& buffer = buffers_[holder_index(ref)];
    buffer.last = step;
    buffer.is_touched = true;
  }
}

void Buffers::occupy(Ref ref, int64_t value) {
  if (ref) {
    auto& occupants = buffers_[holder_index(ref)].occupants;
    if (std::find(occupants.begin(), occupants.end(), value) ==
        occupants.end()) {
      occupants.push_back(value);
    }
  }
}

void Buffers::renumber(const std::vector<int64_t>& now) {
  for (auto& buffer : buffers_) {
    buffer.first = now.at(buffer.first);
    buffer.last = now.at(buffer.last);
  }
}

std::pair<std::vector<Buffer>, int64_t> Buffers::lay_out(bool share) && {
  auto buffers = std::move(buffers_);
  std::vector<Buffer*> order;
  for (auto& buffer : buffers) {
    if (buffer.kind == BufferKind::arena) {
      order.push_back(&buffer);
    }
  }
  std::stable_sort(
      order.begin(), order.end(), [](const Buffer* a, const Buffer* b) {
        return a->bytes > b->bytes;
      });
  std::vector<const Buffer*> placed; // by offset
  int64_t total = 0;
  for (auto* buffer : order) {
    const auto bytes = aligned(std::max<int64_t>(buffer->bytes, 1));
    int64_t offset = 0;
    for (const auto* other : placed) {
      if (share &&
          (other->last < buffer->first || buffer->last < other->first)) {
        continue;
      }
      if (offset + bytes <= other->index) {
        break;
      }
      offset = std::max(offset, aligned(other->index + other->bytes));
    }
    buffer->index = offset;
    total = std::max(total, offset + bytes);
    const auto behind = std::upper_bound(
        placed.begin(), placed.end(), offset, [](int64_t at, const Buffer* it) {
          return at < it->index;
        });
    placed.insert(behind, buffer);
  }
  return {std::move(buffers), total};
}

} // namespace at::native::zendnn::plan
