// The strides that torch's operators would give their results.
#include <torch/csrc/zendnn/plan/Operators.h>

#include <c10/core/MemoryFormat.h>

#include <algorithm>
#include <tuple>

namespace at::native::zendnn::plan {
bool Builder::is_channels_last(int64_t value) const {
  const auto& [sizes, strides] =
      std::tie(values_[value].sizes, values_[value].strides);
  return sizes.size() == 4   ? c10::is_channels_last_strides_2d(sizes, strides)
         : sizes.size() == 5 ? c10::is_channels_last_strides_3d(sizes, strides)
                             : false;
}

Dims Builder::result_strides(int64_t value) const {
  const auto& [shape, strides] =
      std::tie(values_[value].sizes, values_[value].strides);
  if (is_channels_last(value)) {
    return channels_last_strides(shape);
  }
  // Strides of dimensions of size one, and gaps, are of no use to anyone.
  return is_dense(shape, strides) && !is_row_major(shape, strides)
             ? strides
             : row_major_strides(shape);
}

void Builder::follow_strides(const Node& node) {
  const auto follows = find_operator(node.op).follows;
  if (follows == Follows::nothing || node.get(attr::where::filled)) {
    return; // row-major, or a view that has its strides
  }
  auto& result = values_[node.output()];
  std::vector<int64_t> read;
  for (const auto& operand : node.inputs) {
    if (operand.kind == Operand::Kind::value) {
      read.push_back(operand.index);
    }
  }
  const auto whole = [&](int64_t value) {
    return sizes(value) == result.sizes;
  };
  const auto last = [&](int64_t value) { return is_channels_last(value); };
  bool channels_last = false;
  switch (follows) {
    case Follows::nothing:
      break;
    case Follows::input:
      channels_last = last(read[0]);
      break;
    case Follows::input_or_weight:
      // Not when something else of this size was added: it might come first.
      channels_last =
          (last(read[0]) || last(read[1])) &&
          std::all_of(read.begin() + 2, read.end(), [&](int64_t value) {
            return !whole(value) || last(value);
          });
      break;
    case Follows::all:
      channels_last = std::all_of(read.begin(), read.end(), last);
      break;
    case Follows::elements: {
      std::vector<std::pair<Dims, Dims>> operands;
      for (const auto value : read) {
        operands.emplace_back(sizes(value), strides(value));
      }
      result.strides = combined_strides(result.sizes, operands);
      return;
    }
  }
  if (channels_last && result.sizes.size() >= 4) {
    result.strides = channels_last_strides(result.sizes);
  }
}

} // namespace at::native::zendnn::plan
