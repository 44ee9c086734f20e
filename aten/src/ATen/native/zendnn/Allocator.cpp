// The CPU allocator, which caches large freed blocks. The C library would
// return them to the kernel, which then has to find and zero every page of the
// next activation of the same size. That can take longer than the computation.
#include <ATen/native/zendnn/Allocator.h>
#include <ATen/native/zendnn/Context.h>
#include <ATen/native/zendnn/Cpu.h>
#include <ATen/native/zendnn/Environment.h>

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <c10/util/Flags.h>

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <x86intrin.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <fstream>
#include <limits>
#include <mutex>
#include <new>
#include <string>

C10_DECLARE_bool(caffe2_cpu_allocator_do_zero_fill);
C10_DECLARE_bool(caffe2_cpu_allocator_do_junk_fill);

namespace at::native::zendnn {
namespace {

constexpr int kPageBits = 12; // blocks start at pages, and are whole pages
constexpr size_t kHugePage = size_t{2} << 20;

// Size classes, eight per power of two: rounding up wastes at most an eighth,
// and few sizes serve many shapes.
constexpr int kSmallestBits = 15, kStepBits = 3;
constexpr size_t kSmallest = size_t{1} << kSmallestBits;
constexpr size_t kLargest = size_t{1} << 39;
constexpr size_t kClasses = ((39 - kSmallestBits) << kStepBits) + 1;
static_assert(kSmallestBits - kStepBits >= kPageBits);

size_t round_to_class(size_t bytes) {
  const auto step = std::bit_floor(bytes) >> kStepBits;
  return (bytes + step - 1) & ~(step - 1);
}

size_t class_of(size_t rounded) {
  const auto bits = std::bit_width(rounded) - 1;
  const auto eighths = (rounded >> (bits - kStepBits)) & ((1 << kStepBits) - 1);
  return (static_cast<size_t>(bits - kSmallestBits) << kStepBits) + eighths;
}

struct Shard;

struct Block {
  struct Links {
    Block *newer = nullptr, *older = nullptr;
  };

  char* data;
  size_t bytes;
  Shard* home;     // of the thread that last took it
  size_t huge = 0; // how many bytes are to lie in huge pages
  uint64_t freed = 0;
  Links among_all = {}, among_its_size = {}; // of its shard, while it is kept
};

template <Block::Links Block::* links>
struct List {
  Block *newest = nullptr, *oldest = nullptr;

  void add(Block* block) {
    block->*links = {nullptr, newest};
    (newest != nullptr ? (newest->*links).newer : oldest) = block;
    newest = block;
  }

  void remove(Block* block) {
    const auto [newer, older] = block->*links;
    (newer != nullptr ? (newer->*links).older : newest) = older;
    (older != nullptr ? (older->*links).newer : oldest) = newer;
  }
};

// Cached blocks. There are many shards, so that threads seldom wait for each
// other: a thread searches its own first, and then the others of its NUMA node.
struct alignas(64) Shard {
  std::mutex mutex;
  std::atomic<uint64_t> oldest; // time of the first free; 0: empty
  List<&Block::among_all> all;
  std::array<List<&Block::among_its_size>, kClasses> by_size;

  void add(Block* block) {
    std::lock_guard lock(mutex);
    block->freed = __rdtsc();
    all.add(block);
    by_size[class_of(block->bytes)].add(block);
    oldest.store(all.oldest->freed, std::memory_order_relaxed);
  }

  Block* take_newest(size_t size_class) {
    std::lock_guard lock(mutex);
    return remove(by_size[size_class].newest);
  }

  Block* take_oldest() {
    std::lock_guard lock(mutex);
    return remove(all.oldest);
  }

 private:
  Block* remove(Block* block) {
    if (block != nullptr) {
      all.remove(block);
      by_size[class_of(block->bytes)].remove(block);
      oldest.store(
          all.oldest != nullptr ? all.oldest->freed : 0,
          std::memory_order_relaxed);
    }
    return block;
  }
};

// Maps a page to the block that starts there: a tree over the address space,
// read without locks. Its nodes are never freed. Other memory never has an
// entry, since a block's entry is removed before its pages.
class PageTable {
  static constexpr int kLevelBits = 12;
  template <class T>
  using Level = std::array<std::atomic<T*>, size_t{1} << kLevelBits>;
  using Leaf = Level<Block>;
  using Middle = Level<Leaf>;

 public:
  Block* find(const void* data) const {
    const auto address = reinterpret_cast<uintptr_t>(data);
    if ((address & ((1 << kPageBits) - 1)) != 0 || !covers(address)) {
      return nullptr;
    }
    const auto* middle = root_[index(address, 2)].load();
    if (middle == nullptr) {
      return nullptr;
    }
    const auto* leaf = (*middle)[index(address, 1)].load();
    return leaf == nullptr ? nullptr : (*leaf)[index(address, 0)].load();
  }

  // False when out of memory.
  bool set(const void* data, Block* block) {
    const auto address = reinterpret_cast<uintptr_t>(data);
    auto* middle = covers(address) ? child(root_[index(address, 2)]) : nullptr;
    auto* leaf =
        middle == nullptr ? nullptr : child((*middle)[index(address, 1)]);
    if (leaf != nullptr) {
      (*leaf)[index(address, 0)].store(block);
    }
    return leaf != nullptr;
  }

 private:
  static bool covers(uintptr_t address) {
    return address >> (kPageBits + 3 * kLevelBits) == 0;
  }

  static size_t index(uintptr_t address, int level) {
    return (address >> (kPageBits + level * kLevelBits)) &
           ((1 << kLevelBits) - 1);
  }

  template <class T>
  static T* child(std::atomic<T*>& slot) {
    T* found = slot.load();
    if (found == nullptr) {
      auto* instance = new (std::nothrow) T{};
      if (slot.compare_exchange_strong(found, instance)) {
        return instance;
      }
      delete instance;
    }
    return found;
  }

  Level<Middle> root_;
};

constexpr size_t kNodes = 8, kShardsPerNode = 8;
using Node = std::array<Shard, kShardsPerNode>;

// Never destroyed: tensors may be freed after main().
constinit std::array<Node, kNodes> nodes;
constinit PageTable pages;
// On separate cache lines: all threads write one and read the other.
alignas(64) constinit std::atomic<int64_t> cached{0};
alignas(64) constinit std::atomic<int64_t> limit{-1}; // not read yet

struct Place {
  Node* node;
  size_t shard;
};

const Place& place_of_thread() {
  static constinit std::atomic<size_t> threads{0};
  thread_local Place place{nullptr, 0};
  if (place.node == nullptr) {
    place = {&nodes[node_of_thread() % kNodes], threads++ % kShardsPerNode};
  }
  return place;
}

// The memory limit of this process's control groups. Their file lists groups of
// both versions as 'number:controllers:/path'.
uint64_t limit_of_groups() {
  auto least = std::numeric_limits<uint64_t>::max();
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':'), second = line.find(":/", first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const auto controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && controllers != "memory") {
      continue;
    }
    const auto* root = "/sys/fs/cgroup";
    const auto* name = "/memory.max"; // holds 'max' without a limit
    if (!controllers.empty()) {
      root = "/sys/fs/cgroup/memory";
      name = "/memory.limit_in_bytes";
    }
    // A parent's limit applies, too. In a container the path may be the host's,
    // and only the root may exist.
    auto path = line.substr(second + 1);
    while (true) {
      uint64_t bytes = 0;
      if (std::ifstream(root + path + name) >> bytes) {
        least = std::min(least, bytes);
      }
      if (path.empty()) {
        break;
      }
      path.resize(path.rfind('/'));
    }
  }
  return least;
}

uint64_t usable_memory() {
  auto bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
               static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  rlimit space{};
  if (getrlimit(RLIMIT_AS, &space) == 0) {
    bytes = std::min<uint64_t>(bytes, space.rlim_cur);
  }
  return std::min(bytes, limit_of_groups());
}

int64_t initial_limit() {
  return read(
      variables::kAllocatorCache, static_cast<int64_t>(usable_memory() / 8));
}

int64_t current_limit() {
  auto bytes = limit.load(std::memory_order_relaxed);
  if (bytes < 0) {
    const auto initial = initial_limit();
    bytes = limit.compare_exchange_strong(bytes, initial) ? initial : bytes;
  }
  return bytes;
}

bool wants_huge_pages() {
  static const bool wanted = read(variables::kHugePages) == "1";
  return wanted;
}

// Large blocks start where a huge page can.
char* map(size_t bytes) {
  const auto extra = bytes >= kHugePage && wants_huge_pages() ? kHugePage : 0;
  void* mapped = mmap(
      nullptr,
      bytes + extra,
      PROT_READ | PROT_WRITE,
      MAP_PRIVATE | MAP_ANONYMOUS,
      -1,
      0);
  if (mapped == MAP_FAILED) {
    return nullptr;
  }
  auto* data = static_cast<char*>(mapped);
  if (extra != 0) {
    const auto skipped = -reinterpret_cast<uintptr_t>(data) & (kHugePage - 1);
    if (skipped != 0) {
      munmap(data, skipped);
    }
    data += skipped;
    munmap(data + bytes, extra - skipped);
  }
  return data;
}

// Asks for huge pages where they fit into what is used of the block: a first
// touch then costs a fifth, and what is rounded up takes no memory.
void use_huge_pages(Block& block, size_t used) {
  const auto huge = used & ~(kHugePage - 1);
  if (huge <= block.huge || !wants_huge_pages()) {
    return;
  }
  madvise(block.data, huge, MADV_HUGEPAGE); // best effort, as is the next
  madvise(block.data + huge, block.bytes - huge, MADV_NOHUGEPAGE);
  block.huge = huge;
}

void unmap(char* data, size_t bytes) {
  if (munmap(data, bytes) != 0) { // too many mappings to split one
    madvise(data, bytes, MADV_DONTNEED);
  }
}

Block* make_block(size_t bytes, Shard& home) {
  auto* data = map(bytes);
  if (data == nullptr) {
    return nullptr;
  }
  auto* block = new (std::nothrow) Block{data, bytes, &home};
  if (block == nullptr || !pages.set(data, block)) {
    delete block;
    unmap(data, bytes);
    return nullptr;
  }
  return block;
}

void destroy(Block* block) {
  pages.set(block->data, nullptr);
  unmap(block->data, block->bytes);
  delete block;
}

void account(int64_t bytes) {
  cached.fetch_add(bytes, std::memory_order_relaxed);
}

// Destroys the block that was freed first, if it was freed before `time`.
bool drop_oldest(uint64_t time = std::numeric_limits<uint64_t>::max()) {
  Shard* found = nullptr;
  for (auto& node : nodes) {
    for (auto& shard : node) {
      const auto freed = shard.oldest.load(std::memory_order_relaxed);
      if (freed != 0 && freed < time) {
        found = &shard;
        time = freed;
      }
    }
  }
  if (found == nullptr) {
    return false;
  }
  if (auto* block = found->take_oldest()) {
    account(-static_cast<int64_t>(block->bytes));
    destroy(block);
  }
  return true;
}

void shrink() {
  while (cached.load(std::memory_order_relaxed) > current_limit() &&
         drop_oldest()) {
  }
}

// Returns a block of a size class for `used` bytes; null when out of memory.
Block* take(size_t bytes, size_t used) {
  const auto size_class = class_of(bytes);
  const auto& [node, own] = place_of_thread();
  auto& home = (*node)[own];
  for (size_t i = 0; i < kShardsPerNode; ++i) {
    auto& shard = (*node)[(own + i) % kShardsPerNode];
    if (auto* block = shard.take_newest(size_class)) {
      account(-static_cast<int64_t>(bytes));
      block->home = &home;
      use_huge_pages(*block, used);
      return block;
    }
  }
  auto* block = make_block(bytes, home);
  if (block != nullptr) {
    use_huge_pages(*block, used);
  }
  return block;
}

void give_back(Block* block) {
  const auto bytes = static_cast<int64_t>(block->bytes);
  if (bytes > current_limit()) {
    destroy(block);
    return;
  }
  account(bytes);
  block->home->add(block);
  if (cached.load(std::memory_order_relaxed) > current_limit()) {
    shrink();
  }
}

class CachingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes >= kSmallest && bytes <= kLargest && enabled() &&
        !FLAGS_caffe2_cpu_allocator_do_zero_fill &&
        !FLAGS_caffe2_cpu_allocator_do_junk_fill) {
      const auto rounded = round_to_class(bytes);
      if (static_cast<int64_t>(rounded) <= current_limit()) {
        if (auto* block = take(rounded, bytes)) {
          c10::profiledCPUMemoryReporter().New(block->data, bytes);
          return {block->data, block->data, &release, c10::kCPU};
        }
      }
    }
    return allocate_from_stock(bytes);
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &release;
  }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  // Out of memory, this raises torch's own error.
  static c10::DataPtr allocate_from_stock(size_t bytes) {
    auto* stock = c10::GetDefaultCPUAllocator();
    auto data = [&] {
      if (cached.load(std::memory_order_relaxed) == 0) {
        return stock->allocate(bytes);
      }
      try {
        return stock->allocate(bytes);
      } catch (const c10::Error&) {
        empty_cache();
        return stock->allocate(bytes);
      }
    }();
    // All blocks have one deleter, as raw_deleter() promises.
    [[maybe_unused]] const auto exchanged =
        data.compare_exchange_deleter(stock->raw_deleter(), &release);
    return data;
  }

  static void release(void* data) {
    if (auto* block = pages.find(data)) {
      c10::profiledCPUMemoryReporter().Delete(data);
      give_back(block);
    } else {
      c10::GetDefaultCPUAllocator()->raw_deallocate(data);
    }
  }
};

// A forked child inherits the locks' state, and its only thread needs them
// unlocked.
void lock_all() {
  for (auto& node : nodes) {
    for (auto& shard : node) {
      shard.mutex.lock();
    }
  }
}

void unlock_all() {
  for (auto& node : nodes) {
    for (auto& shard : node) {
      shard.mutex.unlock();
    }
  }
}

// Another user-chosen allocator stays.
const bool installed = [] {
  if (c10::GetCPUAllocator() != c10::GetDefaultCPUAllocator()) {
    return false;
  }
  pthread_atfork(&lock_all, &unlock_all, &unlock_all);
  c10::SetCPUAllocator(new CachingAllocator);
  return true;
}();

} // namespace

int64_t memory_cached() {
  return cached.load(std::memory_order_relaxed);
}

int64_t memory_cache_limit() {
  return current_limit();
}

void set_memory_cache_limit(int64_t bytes) {
  TORCH_CHECK_VALUE(
      bytes >= 0, "a limit is a number of bytes of at least 0, not ", bytes);
  limit.store(bytes);
  shrink();
}

void empty_cache() {
  const auto now = __rdtsc(); // later frees may stay
  while (drop_oldest(now)) {
  }
}

} // namespace at::native::zendnn
