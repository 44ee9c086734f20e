// A primitive with memory objects that are made once and given their addresses
// for each run: making them takes longer than a small problem does.
#pragma once

#include <adeep/abstract_types.hpp>

#include <unordered_map>

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

  // For the thread that it belongs to.
  void bind(int argument, const void* address) const {
    operands_.at(argument).set_data_handle(const_cast<void*>(address));
  }
  void run() const {
    primitive_.execute(adeep::stream::default_stream(), operands_);
  }

 private:
  ::zendnn::primitive primitive_;
  std::unordered_map<int, ::zendnn::memory> operands_;
};

} // namespace at::native::zendnn::cpu
