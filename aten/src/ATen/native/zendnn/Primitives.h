// ZenDNN's primitives for eager operators and plans: the most recently used
// ones, their memory objects, and reorders.
#pragma once

#include <c10/util/hash.h>
#include <adeep/abstract_types.hpp>

#include <cstddef>
#include <initializer_list>
#include <list>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace at::native::zendnn {

// What was made for problems, the most recently used ones. Making a primitive
// takes far longer than finding one. Each thread has its own, or a lock.
template <typename Problem, typename Value, typename Hash = c10::hash<Problem>>
class Recent {
 public:
  // Returns what make(problem) returned, now or before; it stays until the next
  // call.
  template <typename Make>
  const Value& find(const Problem& problem, const Make& make) {
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
  using Entry = std::pair<Problem, Value>;
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

inline ::zendnn::memory at_address(
    const ::zendnn::memory::desc& desc,
    const void* address) {
  return {desc, adeep::engine::cpu_engine(), const_cast<void*>(address)};
}

// A primitive with memory objects that are made once and given their addresses
// for each run: making them takes longer than a small problem does. One thread
// runs it at a time.
class BoundPrimitive {
 public:
  // Of descriptions by argument; those that are zero are not there.
  BoundPrimitive(
      ::zendnn::primitive primitive,
      std::initializer_list<std::pair<int, ::zendnn::memory::desc>> operands)
      : primitive_(std::move(primitive)) {
    for (const auto& [argument, desc] : operands) {
      if (!desc.is_zero()) {
        operands_.emplace(argument, at_address(desc, nullptr));
      }
    }
  }

  // Operands that are not there are null.
  void run(std::initializer_list<std::pair<int, const void*>> addresses) const {
    for (const auto& [argument, address] : addresses) {
      if (address != nullptr) {
        operands_.at(argument).set_data_handle(const_cast<void*>(address));
      }
    }
    primitive_.execute(adeep::stream::default_stream(), operands_);
  }

  ::zendnn::memory::desc desc(int argument) const {
    return operands_.at(argument).get_desc();
  }

 private:
  ::zendnn::primitive primitive_;
  std::unordered_map<int, ::zendnn::memory> operands_;
};

// The attributes of a primitive that may run in several threads at once: the
// scratchpad that ZenDNN would keep belongs to the thread that made it.
inline ::zendnn::primitive_attr user_scratchpad() {
  ::zendnn::primitive_attr attributes;
  attributes.set_scratchpad_mode(::zendnn::scratchpad_mode::user);
  return attributes;
}

// ZenDNN's plain loops, for what it has no fast code for.
inline bool is_reference(std::string_view implementation) {
  return implementation.find("ref") != std::string_view::npos;
}

// Brings what lies at `source` in one layout to `target` in another, with zeros
// in the padding of blocks.
inline void reorder_now(
    const ::zendnn::memory::desc& from,
    const void* source,
    const ::zendnn::memory::desc& to,
    void* target) {
  auto read = at_address(from, source), written = at_address(to, target);
  ::zendnn::reorder(read, written)
      .execute(adeep::stream::default_stream(), read, written);
}

} // namespace at::native::zendnn
