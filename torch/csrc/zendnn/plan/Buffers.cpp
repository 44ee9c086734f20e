#include <torch/csrc/zendnn/plan/Buffers.h>

#include <algorithm>

namespace at::native::zendnn::plan {

int64_t Buffers::add(Buffer buffer, int64_t step) {
  buffer.first = buffer.last = step;
  buffers_.push_back(std::move(buffer));
  return static_cast<int64_t>(buffers_.size()) - 1;
}

std::vector<int64_t> Buffers::chain(Ref ref) const {
  std::vector<int64_t> found;
  for (auto index = ref.buffer; index >= 0;) {
    found.push_back(index);
    const auto& buffer = buffers_[index];
    index = buffer.kind == BufferKind::bound ? buffer.index : -1;
  }
  return found;
}

void Buffers::touch(Ref ref, int64_t step) {
  for (const auto index : chain(ref)) {
    auto& buffer = buffers_[index];
    buffer.last = step;
    buffer.first = std::min(buffer.first, buffer.last);
  }
}

void Buffers::occupy(Ref ref, int64_t value) {
  for (const auto index : chain(ref)) {
    buffers_[index].occupants.insert(value);
  }
}

std::pair<std::vector<Executable::Buffer>, int64_t> Buffers::lay_out(
    bool share,
    int64_t steps) const {
  std::vector<Lifetime> lifetimes;
  for (const auto& buffer : buffers_) {
    if (buffer.kind == BufferKind::arena) {
      lifetimes.push_back(
          share ? Lifetime{buffer.bytes, buffer.first, buffer.last}
                : Lifetime{buffer.bytes, 0, steps});
    }
  }
  const auto arena_bytes = plan::lay_out(lifetimes);
  std::vector<Executable::Buffer> buffers;
  size_t next = 0;
  for (const auto& buffer : buffers_) {
    buffers.push_back(
        {buffer.kind,
         buffer.kind == BufferKind::arena ? lifetimes[next++].offset
                                          : buffer.index,
         buffer.data,
         buffer.offset});
  }
  return {std::move(buffers), arena_bytes};
}

} // namespace at::native::zendnn::plan
