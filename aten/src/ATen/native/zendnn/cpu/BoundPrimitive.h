// A primitive with memory objects that are made once and given their addresses
// for each run: making them takes longer than a small problem does.
#pragma once

#include <adeep/abstract_types.hpp>

#include <initializer_list>
#include <unordered_map>
#include <utility>

namespace at::native::zendnn::cpu {

class BoundPrimitive {
 public:
  // Of descriptions by argument; those that are zero are not there.
  BoundPrimitive(
      ::zendnn::primitive primitive,
      const std::unordered_map<int, ::zendnn::memory::desc>& operands)
      : primitive_(std::move(primitive)) {
    for (const auto& [argument, desc] : operands) {
      if (!desc.is_zero()) {
        operands_.emplace(
            argument,
            ::zendnn::memory(desc, adeep::engine::cpu_engine(), nullptr));
      }
    }
  }

  // For the thread that it belongs to. Operands that are not there are null.
  void run(std::initializer_list<std::pair<int, const void*>> addresses) const {
    for (const auto& [argument, address] : addresses) {
      if (address != nullptr) {
        operands_.at(argument).set_data_handle(const_cast<void*>(address));
      }
    }
    primitive_.execute(adeep::stream::default_stream(), operands_);
  }

 private:
  ::zendnn::primitive primitive_;
  std::unordered_map<int, ::zendnn::memory> operands_;
};

} // namespace at::native::zendnn::cpu
