// What a plan has built for its most recent calls.
#include <torch/csrc/zendnn/plan/Settings.h>
#include <torch/csrc/zendnn/plan/cache/Ahead.h>
#include <torch/csrc/zendnn/plan/cache/PlanCache.h>

#include <ATen/Parallel.h>
#include <ATen/native/zendnn/Environment.h>
#include <ATen/record_function.h>

#include <omp.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <utility>

namespace at::native::zendnn::plan {
namespace {

// A call finds its entry twice: where it is taken, and where it runs. So it
// recurs for the second time when it is found for the fourth.
constexpr int kRecurring = 4;

// So many calls that grow evenly tell which one comes next.
constexpr size_t kTelling = 3;

std::atomic<size_t>& capacity() {
  static std::atomic<size_t> entries = [] {
    const auto number = read(variables::kPlanCacheCapacity);
    return static_cast<size_t>(std::max<int64_t>(number, 1));
  }();
  return entries;
}

// Adds the numbers that continue three others; returns false where those do not
// grow evenly, or one of the next is less than the least.
bool extrapolate(
    const Integers& first,
    const Integers& second,
    const Integers& third,
    int64_t least,
    Integers& next) {
  if (first.size() != third.size() || second.size() != third.size()) {
    return false;
  }
  for (size_t i = 0; i < third.size(); ++i) {
    const uint64_t a = first[i], b = second[i], c = third[i]; // which may wrap
    next.push_back(static_cast<int64_t>(c + (c - b)));
    if (b - a != c - b || next.back() < least) {
      return false;
    }
  }
  return true;
}

// The call that continues three others, in sizes, strides and numbers; null
// where none does.
std::shared_ptr<const Call>
continued(const Call& first, const Call& second, const Call& third) {
  Call next{.route = third.route};
  if (first.route != third.route || second.route != third.route ||
      !extrapolate(
          first.numbers,
          second.numbers,
          third.numbers,
          std::numeric_limits<int64_t>::min(),
          next.numbers)) {
    return nullptr;
  }
  for (size_t i = 0; i < third.inputs.size(); ++i) {
    const auto &a = first.inputs[i], &b = second.inputs[i],
               &c = third.inputs[i];
    auto& input = next.inputs.emplace_back();
    input.dtype = c.dtype;
    if (a.dtype != c.dtype || b.dtype != c.dtype ||
        !extrapolate(a.sizes, b.sizes, c.sizes, /*least=*/1, input.sizes) ||
        !extrapolate(
            a.strides, b.strides, c.strides, /*least=*/0, input.strides)) {
      return nullptr;
    }
  }
  return std::make_shared<const Call>(std::move(next));
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
    std::function<Built(const Call&, Occasion)> build,
    std::function<void()> dropped)
    : build_(std::move(build)), dropped_(std::move(dropped)) {}

PlanCache::~PlanCache() {
  ahead::forget(this);
}

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
  return threads == threads_now && call->route == route_now &&
         (call->numbers == numbers ||
          (built && built->conditions.hold(call->numbers, numbers))) &&
         std::equal(
             call->inputs.begin(),
             call->inputs.end(),
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

std::shared_ptr<PlanCache::Slot> PlanCache::add(
    std::shared_ptr<const Call> call,
    int threads) {
  auto slot = std::make_shared<Slot>();
  slot->call = std::move(call);
  slot->threads = threads;
  recent_.push_front(slot);
  return slot;
}

void PlanCache::remember(const Slot& slot) {
  new_.push_front({slot.call, slot.threads});
  if (new_.size() > kTelling) {
    new_.pop_back();
  }
  has_new_ = true;
}

std::shared_ptr<const Built> PlanCache::build(
    const Call& call,
    Occasion occasion) {
  RECORD_FUNCTION("zendnn::prepare", std::vector<c10::IValue>());
  return std::make_shared<const Built>(build_(call, occasion));
}

std::shared_ptr<const Built> PlanCache::find(
    const Tensors& tensors,
    const Integers& numbers) {
  std::unique_lock lock(mutex_);
  auto slot = known(tensors, numbers);
  if (!slot) {
    Call call{.numbers = numbers, .route = route::now()};
    for (const auto& tensor : tensors) {
      call.inputs.push_back(spec_of(tensor));
    }
    slot = add(
        std::make_shared<const Call>(std::move(call)), at::get_num_threads());
    remember(*slot);
  }
  const bool was_expected = std::exchange(slot->is_expected, false);
  if (was_expected) {
    remember(*slot);
    drop(beyond_capacity(), lock);
  }
  if (slot->built) {
    if (slot->built->is_timed || was_expected || ++slot->found != kRecurring) {
      return slot->built;
    }
    lock.unlock();
    // Others run the old one meanwhile.
    const auto again = build(*slot->call, Occasion::recurring);
    lock.lock();
    slot->built = again;
    lock.unlock();
    dropped_();
    return again;
  }
  lock.unlock();
  return built_of(slot, Occasion::call);
}

std::shared_ptr<const Built> PlanCache::built_of(
    const std::shared_ptr<Slot>& slot,
    Occasion occasion) {
  std::lock_guard building(slot->building); // others wait for it
  std::unique_lock lock(mutex_);
  if (slot->built) {
    return slot->built;
  }
  lock.unlock();
  std::shared_ptr<const Built> built;
  try {
    built = build(*slot->call, occasion);
  } catch (...) {
    // Not a refusal but an accident, such as no memory: let the next call try,
    // which may be waiting already.
    lock.lock();
    if (occasion != Occasion::ahead || slot->is_expected) {
      recent_.remove(slot);
    }
    throw;
  }
  lock.lock();
  slot->built = built;
  drop(beyond_capacity(), lock);
  return built;
}

void PlanCache::look_ahead() noexcept {
  if (!has_new_.exchange(false)) {
    return;
  }
  try {
    if (auto next = expected(); next.call != nullptr && !verifies()) {
      ahead::give(this, [this, next = std::move(next)] { build_ahead(next); });
    }
  } catch (...) { // no memory, or no thread: the call itself will build
  }
}

PlanCache::Entry PlanCache::expected() const {
  const std::lock_guard lock(mutex_);
  if (new_.size() < kTelling) {
    return {};
  }
  const auto &third = new_.front(), &second = *std::next(new_.begin()),
             &first = new_.back();
  if (first.threads != third.threads || second.threads != third.threads) {
    return {};
  }
  return {continued(*first.call, *second.call, *third.call), third.threads};
}

void PlanCache::build_ahead(const Entry& expected) {
  try {
    std::shared_ptr<Slot> slot;
    {
      const std::lock_guard lock(mutex_);
      if (std::any_of(recent_.begin(), recent_.end(), [&](const auto& it) {
            return it->threads == expected.threads &&
                   *it->call == *expected.call;
          })) {
        return;
      }
      slot = add(expected.call, expected.threads);
      slot->is_expected = true;
    }
    at::get_num_threads(); // sets torch's default in a new thread
    omp_set_num_threads(expected.threads);
    built_of(slot, Occasion::ahead);
  } catch (...) { // the call itself will say so
  }
}

PlanCache::Slots PlanCache::beyond_capacity() {
  Slots gone;
  // Of refusals, of executables, and of what nobody has asked for yet.
  std::array<size_t, 3> left{capacity(), capacity(), 1};
  recent_.remove_if([&](const std::shared_ptr<Slot>& slot) {
    if (slot->built == nullptr) {
      return false;
    }
    auto& room = left[slot->is_expected ? 2 : slot->built->executable ? 1 : 0];
    if (room > 0) {
      --room;
      return false;
    }
    gone.push_back(slot);
    return true;
  });
  return gone;
}

void PlanCache::drop(Slots gone, std::unique_lock<std::mutex>& lock) {
  if (!gone.empty()) {
    lock.unlock();
    gone.clear();
    dropped_();
    lock.lock();
  }
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

size_t PlanCache::built_ahead() const {
  const std::lock_guard lock(mutex_);
  return std::count_if(recent_.begin(), recent_.end(), [](const auto& slot) {
    return slot->built && slot->is_expected;
  });
}

std::vector<PlanCache::Entry> PlanCache::entries() const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> built;
  for (const auto& slot : recent_) {
    if (slot->built && !slot->is_expected) {
      built.push_back(*slot);
    }
  }
  return built;
}

void PlanCache::clear() {
  ahead::forget(this);
  Slots gone;
  {
    const std::lock_guard lock(mutex_);
    gone.swap(recent_);
    new_.clear();
  }
  gone.clear();
  dropped_();
}

} // namespace at::native::zendnn::plan
