// Primitives by what they are made for, the most recently used of a thread.
// Making one takes far longer than finding one, and a cache for each thread
// needs no lock.
#pragma once

#include <c10/util/hash.h>

#include <cstddef>
#include <list>
#include <unordered_map>
#include <utility>

namespace at::native::zendnn::cpu {

// Hash is a function of a problem, as std::unordered_map wants it.
template <typename Problem, typename Made, typename Hash>
class RecentPrimitives {
 public:
  // Returns what make(problem) returned, now or before; it stays until the next
  // call.
  template <typename Make>
  const Made& find(const Problem& problem, const Make& make) {
    constexpr size_t kCapacity = 512;
    if (const auto found = index_.find(problem); found != index_.end()) {
      recent_.splice(recent_.begin(), recent_, found->second);
      return found->second->second;
    }
    recent_.emplace_front(problem, make(problem));
    index_.emplace(problem, recent_.begin());
    if (index_.size() > kCapacity) {
      index_.erase(recent_.back().first);
      recent_.pop_back();
    }
    return recent_.front().second;
  }

 private:
  using Entry = std::pair<Problem, Made>;
  std::list<Entry> recent_;
  std::unordered_map<Problem, typename std::list<Entry>::iterator, Hash> index_;
};

// Of a hash so far and lists of numbers.
template <typename... Lists>
size_t hash_with(size_t seed, const Lists&... lists) {
  const auto add = [&seed](const auto& list) {
    for (const auto value : list) {
      seed = c10::hash_combine(seed, static_cast<size_t>(value));
    }
  };
  (add(lists), ...);
  return seed;
}

} // namespace at::native::zendnn::cpu
