#include <ATen/native/zendnn/Allocator.h>
#include <ATen/native/zendnn/Environment.h>
#include <torch/csrc/zendnn/plan/Arena.h>
#include <torch/csrc/zendnn/plan/Settings.h>

#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <list>
#include <mutex>
#include <new>
#include <numeric>
#include <utility>

namespace at::native::zendnn::plan {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

int64_t capacity() {
  static const int64_t bytes = [] {
    return whole_number_from("ZENDNN_ARENA_CAPACITY", 0, 1024) << 20;
  }();
  return bytes;
}

int64_t round_up(int64_t bytes, int64_t to) {
  return (bytes + to - 1) / to * to;
}

class Pool {
 public:
  using Piece = std::pair<char*, int64_t>; // with its bytes

  static Pool& instance() {
    static auto* pool = new Pool; // outlives every plan
    return *pool;
  }

  // The smallest idle piece that is large enough and not wastefully large.
  Piece take(int64_t bytes) {
    bytes = round_up(bytes, bytes >= kHugePage ? kHugePage : kAlignment);
    {
      std::lock_guard lock(mutex_);
      auto found = idle_.end();
      for (auto piece = idle_.begin(); piece != idle_.end(); ++piece) {
        if (piece->second >= bytes && piece->second <= 2 * bytes + kHugePage &&
            (found == idle_.end() || piece->second < found->second)) {
          found = piece;
        }
      }
      if (found != idle_.end()) {
        const auto piece = *found;
        idle_.erase(found);
        idle_bytes_ -= piece.second;
        used_bytes_ += piece.second;
        return piece;
      }
      used_bytes_ += bytes;
    }
    const auto alignment = bytes >= kHugePage ? kHugePage : kAlignment;
    auto* data = static_cast<char*>(std::aligned_alloc(
        static_cast<size_t>(alignment), static_cast<size_t>(bytes)));
    if (data == nullptr) {
      std::lock_guard lock(mutex_);
      used_bytes_ -= bytes;
      throw std::bad_alloc();
    }
    if (bytes >= kHugePage && wants_huge_pages()) {
      madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE); // best effort
    }
    return {data, bytes};
  }

  // What is used now goes on being used: the oldest idle pieces make room.
  void give_back(char* data, int64_t bytes) {
    std::list<Piece> dropped;
    {
      std::lock_guard lock(mutex_);
      used_bytes_ -= bytes;
      idle_.emplace_back(data, bytes);
      idle_bytes_ += bytes;
      if (bytes > capacity()) { // nothing makes room for it
        dropped.splice(dropped.end(), idle_, std::prev(idle_.end()));
        idle_bytes_ -= bytes;
      }
      while (idle_bytes_ > capacity()) {
        idle_bytes_ -= idle_.front().second;
        dropped.splice(dropped.end(), idle_, idle_.begin());
      }
    }
    free_all(dropped);
  }

  void release() {
    std::lock_guard lock(mutex_);
    free_all(idle_);
    idle_.clear();
    idle_bytes_ = 0;
  }

  int64_t used() {
    std::lock_guard lock(mutex_);
    return used_bytes_;
  }

  int64_t idle() {
    std::lock_guard lock(mutex_);
    return idle_bytes_;
  }

 private:
  static void free_all(const std::list<Piece>& pieces) {
    for (const auto& [data, bytes] : pieces) {
      std::free(data);
    }
  }

  std::mutex mutex_;
  std::list<Piece> idle_; // the oldest first
  int64_t idle_bytes_ = 0, used_bytes_ = 0;
};

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
    const auto bytes = round_up(std::max<int64_t>(buffer.bytes, 1), kAlignment);
    int64_t offset = 0;
    for (const auto* other : placed) {
      if (other->last < buffer.first || buffer.last < other->first) {
        continue;
      }
      if (offset + bytes <= other->offset) {
        break;
      }
      offset =
          std::max(offset, round_up(other->offset + other->bytes, kAlignment));
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

Arena::Arena(int64_t bytes) : data_(nullptr), bytes_(0) {
  if (bytes > 0) {
    std::tie(data_, bytes_) = Pool::instance().take(bytes);
  }
}

Arena::~Arena() {
  if (data_ != nullptr) {
    Pool::instance().give_back(data_, bytes_);
  }
}

int64_t arena_bytes_used() {
  return Pool::instance().used();
}

int64_t arena_bytes_idle() {
  return Pool::instance().idle();
}

void release_idle_arenas() {
  Pool::instance().release();
}

} // namespace at::native::zendnn::plan
