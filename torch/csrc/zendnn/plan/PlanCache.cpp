// What a plan has built for its most recent calls.
#include <torch/csrc/zendnn/plan/PlanCache.h>
#include <torch/csrc/zendnn/plan/Settings.h>

#include <ATen/Parallel.h>
#include <ATen/native/zendnn/Environment.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <array>

namespace at::native::zendnn::plan {
namespace {

// A call finds its entry twice: where it is taken, and where it runs. So it
// recurs for the second time when it is found for the fourth.
constexpr int kRecurring = 4;

std::atomic<size_t>& capacity() {
  static std::atomic<size_t> entries = [] {
    const auto number = whole_number_from("ZENDNN_PLAN_CACHE_CAPACITY", 0, 32);
    return static_cast<size_t>(std::max<int64_t>(number, 1));
  }();
  return entries;
}

} // namespace

size_t plan_cache_capacity() {
  return capacity();
}

void set_plan_cache_capacity(int64_t entries) {
  TORCH_CHECK_VALUE(
      entries > 0, "a plan cache holds at least 1 entry, not ", entries);
  capacity() = static_cast<size_t>(entries);
}

PlanCache::PlanCache(
    std::function<Built(const Call&, bool)> build,
    std::function<void()> dropped)
    : build_(std::move(build)), dropped_(std::move(dropped)) {}

bool PlanCache::Entry::matches(
    const Tensors& tensors,
    const Integers& numbers,
    int threads_now,
    const route::Moment& route_now) const {
  const auto is_like = [](const TensorSpec& input, const Tensor& tensor) {
    return input.dtype == tensor.scalar_type() &&
           tensor.sizes() == IntArrayRef(input.sizes) &&
           tensor.strides() == IntArrayRef(input.strides);
  };
  return threads == threads_now && call.route == route_now &&
         (call.numbers == numbers ||
          (built && built->conditions.hold(call.numbers, numbers))) &&
         std::equal(
             call.inputs.begin(),
             call.inputs.end(),
             tensors.begin(),
             tensors.end(),
             is_like);
}

std::shared_ptr<PlanCache::Slot> PlanCache::known(
    const Tensors& tensors,
    const Integers& numbers) {
  const auto threads = at::get_num_threads();
  const auto route = route::now();
  const auto slot =
      std::find_if(recent_.begin(), recent_.end(), [&](const auto& it) {
        return it->matches(tensors, numbers, threads, route);
      });
  if (slot == recent_.end()) {
    return nullptr;
  }
  recent_.splice(recent_.begin(), recent_, slot);
  return recent_.front();
}

std::shared_ptr<const Built> PlanCache::build(const Call& call, bool recurs) {
  RECORD_FUNCTION("zendnn::prepare", std::vector<c10::IValue>());
  return std::make_shared<const Built>(build_(call, recurs));
}

std::shared_ptr<const Built> PlanCache::find(
    const Tensors& tensors,
    const Integers& numbers) {
  std::unique_lock lock(mutex_);
  auto slot = known(tensors, numbers);
  if (!slot) {
    slot = std::make_shared<Slot>();
    slot->call.numbers = numbers;
    slot->call.route = route::now();
    for (const auto& tensor : tensors) {
      slot->call.inputs.push_back(spec_of(tensor));
    }
    slot->threads = at::get_num_threads();
    recent_.push_front(slot);
  }
  if (slot->built) {
    if (slot->built->is_timed || ++slot->found != kRecurring) {
      return slot->built;
    }
    lock.unlock();
    const auto again = build(slot->call, /*recurs=*/true); // others run the old
    lock.lock();
    slot->built = again;
    lock.unlock();
    dropped_();
    return again;
  }
  lock.unlock();
  std::lock_guard building(slot->building); // others wait for it
  lock.lock();
  if (slot->built) {
    return slot->built;
  }
  lock.unlock();
  std::shared_ptr<const Built> built;
  try {
    built = build(slot->call, /*recurs=*/false);
  } catch (...) {
    // Not a refusal but an accident, such as no memory: let the next call try.
    lock.lock();
    recent_.remove(slot);
    throw;
  }
  lock.lock();
  slot->built = built;
  auto gone = beyond_capacity();
  lock.unlock();
  if (!gone.empty()) {
    gone.clear();
    dropped_();
  }
  return built;
}

PlanCache::Slots PlanCache::beyond_capacity() {
  Slots gone;
  std::array<size_t, 2> kept{}; // refusals and executables
  recent_.remove_if([&](const std::shared_ptr<Slot>& slot) {
    const auto* built = slot->built.get();
    const bool drop =
        built != nullptr && ++kept[built->executable ? 1 : 0] > capacity();
    if (drop) {
      gone.push_back(slot);
    }
    return drop;
  });
  return gone;
}

void PlanCache::refuse(
    const Tensors& tensors,
    const Integers& numbers,
    const std::string& reason) {
  auto refused = std::make_shared<Slot>();
  refused->built = std::make_shared<const Built>(Built{.refused = reason});
  const std::lock_guard lock(mutex_);
  if (const auto slot = known(tensors, numbers)) {
    // A new slot, since others may still read the one that they have found.
    refused->call = slot->call;
    refused->threads = slot->threads;
    recent_.front() = refused;
  }
}

std::vector<PlanCache::Entry> PlanCache::entries() const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> built;
  for (const auto& slot : recent_) {
    if (slot->built) {
      built.push_back(*slot);
    }
  }
  return built;
}

void PlanCache::clear() {
  Slots gone;
  {
    const std::lock_guard lock(mutex_);
    gone.swap(recent_);
  }
  gone.clear();
  dropped_();
}

} // namespace at::native::zendnn::plan
