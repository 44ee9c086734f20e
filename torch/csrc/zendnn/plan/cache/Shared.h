// What the executables of a plan share, by key, for as long as one holds it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace at::native::zendnn::plan {

template <typename T>
class Shared {
 public:
  // Null for what nobody holds.
  std::shared_ptr<T> find(const std::string& key) const {
    std::lock_guard lock(mutex_);
    const auto known = held_.find(key);
    return known == held_.end() ? nullptr : known->second.lock();
  }

  // What is held under the key; else what `make`, which runs under the lock,
  // returns.
  template <typename Make>
  std::shared_ptr<T> get(const std::string& key, const Make& make) {
    std::lock_guard lock(mutex_);
    auto& known = held_[key];
    auto found = known.lock();
    if (found == nullptr) {
      found = make();
      known = found;
    }
    return found;
  }

  template <typename Visit>
  void visit(const Visit& visit) const {
    std::lock_guard lock(mutex_);
    for (const auto& [key, known] : held_) {
      if (const auto found = known.lock()) {
        visit(*found);
      }
    }
  }

  // Forgets the keys of what nobody holds.
  void trim() {
    std::lock_guard lock(mutex_);
    std::erase_if(
        held_, [](const auto& entry) { return entry.second.expired(); });
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::weak_ptr<T>> held_;
};

} // namespace at::native::zendnn::plan
