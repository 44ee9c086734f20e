#include <torch/csrc/zendnn/plan/cache/Forms.h>
#include <torch/csrc/zendnn/plan/cache/Packed.h>

#include <ATen/Parallel.h>
#include <ATen/native/zendnn/Cpu.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace at::native::zendnn::plan {

Piece::Piece(int64_t bytes, Fill fill)
    : memory_(allocate(bytes)), bytes_(bytes), fill_(std::move(fill)) {}

void Piece::fill() {
  std::lock_guard lock(filling_);
  if (!filled_) {
    fill_(memory_.get());
    fill_ = nullptr; // and what it holds
    filled_ = true;
  }
}

std::shared_ptr<Piece>
Packed::get(const std::string& key, int64_t bytes, Fill fill) {
  return pieces_.get(
      key, [&] { return std::make_shared<Piece>(bytes, std::move(fill)); });
}

std::shared_ptr<Piece> Packed::get(
    const Weight& weight,
    const std::string& form,
    int64_t bytes,
    Fill fill,
    const std::function<uint64_t()>& digest) {
  return pieces_.get(weight.text + form, [&] {
    return Forms::all().get(weight, form, bytes, std::move(fill), digest());
  });
}

// Threads that fill one piece together wait for each other at the first touch
// of each page, which takes longer than to pack what is in it. So each fills
// pieces of its own, largest first; all together fill those that exceed a
// thread's share. Where threads run on several NUMA nodes, all of them fill
// each piece: a page belongs to the node that touches it first, and a reorder's
// threads are about those that read the same part in a product.
void Packed::fill(std::vector<std::shared_ptr<Piece>> pieces) {
  std::erase_if(pieces, [](const auto& piece) { return piece->is_filled(); });
  if (pieces.empty()) {
    return;
  }
  std::sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) {
    return a->bytes() > b->bytes();
  });
  const auto total = std::accumulate(
      pieces.begin(),
      pieces.end(),
      int64_t{0},
      [](int64_t sum, const auto& piece) { return sum + piece->bytes(); });
  const auto threads = at::get_num_threads();
  const auto most_alone = threads_span_nodes() ? 0 : total / threads;
  std::atomic<size_t> next = 0;
  while (next < pieces.size() && pieces[next]->bytes() > most_alone) {
    pieces[next++]->fill();
  }
  if (next == pieces.size()) {
    return; // wakes no threads
  }
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    for (size_t taken = next++; taken < pieces.size(); taken = next++) {
      pieces[taken]->fill();
    }
  });
}

bool are_same_bytes(const void* a, const void* b, int64_t bytes) {
  constexpr int64_t kGrain = 1 << 20;
  std::atomic<bool> same{true};
  at::parallel_for(0, bytes, kGrain, [&](int64_t begin, int64_t end) {
    if (same && std::memcmp(
                    static_cast<const char*>(a) + begin,
                    static_cast<const char*>(b) + begin,
                    end - begin) != 0) {
      same = false;
    }
  });
  return same;
}

size_t number_of(const ::zendnn::memory::desc& layout) {
  static std::mutex numbering;
  static auto* const layouts = new std::vector<::zendnn::memory::desc>;
  std::lock_guard lock(numbering);
  const auto known = std::find(layouts->begin(), layouts->end(), layout);
  if (known != layouts->end()) {
    return known - layouts->begin();
  }
  layouts->push_back(layout);
  return layouts->size() - 1;
}

int64_t Packed::bytes() const {
  int64_t held = 0;
  pieces_.visit([&](const Piece& piece) { held += piece.bytes(); });
  return held;
}

} // namespace at::native::zendnn::plan
