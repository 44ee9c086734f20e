// What a plan has built for its most recent calls.
//
// A plan owns its cache. One lock guards the slots; nobody holds it while
// something is built or freed. Who builds for a new slot holds the slot's own
// lock, which is taken before the other; whoever wants the same waits there.
// What recurs is built anew without it, since others run the old one meanwhile.
#pragma once

#include <torch/csrc/zendnn/plan/build/Builder.h>

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
  std::optional<Layout> layout{};       // of images; none when there are none
  std::set<c10::ScalarType> products{}; // what autocast would convert
  std::set<c10::ScalarType> widened{};  // what it would compute in float32
  std::vector<Fallback> fallbacks{};    // what torch computes
  Conditions conditions{};              // of the numbers
  size_t routed_calls = 0;              // those of the route's chart
  bool is_timed = true; // else a build that may time could choose otherwise
  std::shared_ptr<std::atomic<bool>> due =
      std::make_shared<std::atomic<bool>>(verifies());
};

// Why something is built: for a new call, for one that recurs, or ahead of one
// that is expected.
enum class Occasion : uint8_t { call, recurring, ahead };

// Holds the executables, and the refusals, of as many calls as
// plan_cache_capacity() says of each, and drops the least recently used. Calls
// that differ in nothing but numbers share an entry where its conditions hold.
// What was built without timing is built anew once its call recurs. Where sizes
// and numbers grow by the same from one new call to the next, as with a cache
// of keys and values, another thread builds ahead. Any number of threads may
// use a cache at once.
class PlanCache {
 public:
  struct Entry {
    std::shared_ptr<const Call> call{};
    int threads = 0;
    std::shared_ptr<const Built> built{}; // null until it is

    bool matches(
        const Tensors& tensors,
        const Integers& numbers,
        int threads_now,
        const route::Moment& route_now) const;
  };

  // `build` runs without a lock and may throw. `dropped` is called after
  // entries are gone, to free what only they used.
  PlanCache(
      std::function<Built(const Call&, Occasion)> build,
      std::function<void()> dropped);
  ~PlanCache();

  // Returns what serves this call. Builds it first where nothing does: one
  // thread builds, and the others that want the same wait for it. Throws what
  // `build` throws, and leaves no entry then.
  std::shared_ptr<const Built> find(
      const Tensors& tensors,
      const Integers& numbers);
  // To be called after a run, when threads have time: if its call was new, and
  // continues the two that were new before, another thread builds for the next.
  // Where that cannot be, it does nothing.
  void look_ahead() noexcept;
  // Refuses calls like this one from now on.
  void refuse(
      const Tensors& tensors,
      const Integers& numbers,
      const std::string& reason);
  // How many entries are there for calls that are yet to come.
  size_t built_ahead() const;
  // The others whose building has ended, the most recently used first.
  std::vector<Entry> entries() const;
  void clear();

 private:
  struct Slot : Entry {
    std::mutex building{};
    // Guarded by mutex_:
    int found = 0;            // how many times it was there
    bool is_expected = false; // nobody has asked for it yet
  };
  using Slots = std::list<std::shared_ptr<Slot>>;

  // The slot for this call, which becomes the first; null where there is none.
  // The caller holds the lock.
  std::shared_ptr<Slot> known(const Tensors& tensors, const Integers& numbers);
  // A new slot, the first; the caller holds the lock.
  std::shared_ptr<Slot> add(std::shared_ptr<const Call> call, int threads);
  // Adds to the new calls; the caller holds the lock.
  void remember(const Slot& slot);
  std::shared_ptr<const Built> build(const Call& call, Occasion occasion);
  // What the slot has; builds it first where that is nothing.
  std::shared_ptr<const Built> built_of(
      const std::shared_ptr<Slot>& slot,
      Occasion occasion);
  // The call that continues the latest new ones, and its threads; without a
  // call where none does.
  Entry expected() const;
  void build_ahead(const Entry& expected);
  // Removes and returns the slots beyond the capacity. The caller holds the
  // lock.
  Slots beyond_capacity();
  // Frees slots while the lock is open.
  void drop(Slots gone, std::unique_lock<std::mutex>& lock);

  std::function<Built(const Call&, Occasion)> build_;
  std::function<void()> dropped_;
  mutable std::mutex mutex_;
  Slots recent_; // the most recently used first
  // The latest calls that were new, the last first, without what is built; and
  // whether one has come since look_ahead() saw them.
  std::list<Entry> new_;
  std::atomic<bool> has_new_{false};
};

} // namespace at::native::zendnn::plan
