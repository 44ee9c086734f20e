// What a plan has built for its most recent calls.
#pragma once

#include <torch/csrc/zendnn/plan/Builder.h>

#include <atomic>
#include <functional>
#include <list>
#include <mutex>
#include <set>
#include <vector>

namespace at::native::zendnn::plan {

struct Built {
  std::shared_ptr<Executable> executable = nullptr; // or
  std::string refused{};                            // why not
  std::string layout{};                 // of images; empty when there are none
  std::set<c10::ScalarType> products{}; // what autocast would convert
  std::vector<Left> left{};             // what torch computes
  Conditions conditions{};              // of the numbers
  size_t routed_calls = 0;              // those of the route's chart
  bool is_timed = true; // else a build that may time could choose otherwise
  std::shared_ptr<std::atomic<bool>> due =
      std::make_shared<std::atomic<bool>>(verifies());
};

// Holds the executables, and the refusals, of as many calls as
// plan_cache_capacity() says of each, and drops the least recently used. Calls
// that differ in nothing but numbers share an entry where its conditions hold.
// What was built without timing is built anew once its call recurs. Any number
// of threads may use a cache at once.
class PlanCache {
 public:
  struct Entry {
    Call call;
    int threads = 0;
    std::shared_ptr<const Built> built{}; // null until it is

    bool matches(
        const Tensors& tensors,
        const Integers& numbers,
        int threads_now,
        const route::Moment& route_now) const;
  };

  // `build` runs without a lock and may throw; it is told whether the call
  // recurs. `dropped` is called after entries are gone, to free what only they
  // used.
  PlanCache(
      std::function<Built(const Call&, bool recurs)> build,
      std::function<void()> dropped);

  // Returns what serves this call. Builds it first where nothing does: one
  // thread builds, and the others that want the same wait for it. Throws what
  // `build` throws, and leaves no entry then.
  std::shared_ptr<const Built> find(
      const Tensors& tensors,
      const Integers& numbers);
  // Refuses calls like this one from now on.
  void refuse(
      const Tensors& tensors,
      const Integers& numbers,
      const std::string& reason);
  // The entries whose building has ended, the most recently used first.
  std::vector<Entry> entries() const;
  void clear();

 private:
  struct Slot : Entry {
    std::mutex building{};
    int found = 0; // how many times it was there; guarded by mutex_
  };
  using Slots = std::list<std::shared_ptr<Slot>>;

  // The slot for this call, which becomes the first; null where there is none.
  // The caller holds the lock.
  std::shared_ptr<Slot> known(const Tensors& tensors, const Integers& numbers);
  std::shared_ptr<const Built> build(const Call& call, bool recurs);
  // Removes and returns the slots beyond the capacity. The caller holds the
  // lock.
  Slots beyond_capacity();

  std::function<Built(const Call&, bool)> build_;
  std::function<void()> dropped_;
  mutable std::mutex mutex_;
  Slots recent_; // the most recently used first
};

} // namespace at::native::zendnn::plan
