#include <ATen/native/zendnn/Thresholds.h>

#include <c10/util/Exception.h>

#include <algorithm>

namespace at::native::zendnn {

std::map<std::string, int64_t> thresholds() {
  std::map<std::string, int64_t> values;
  for (const auto& row : threshold_rows) {
    values.emplace(row.name, row.value.load(std::memory_order_relaxed));
  }
  return values;
}

void set_threshold(const std::string& name, int64_t value) {
  auto* row = std::ranges::find(threshold_rows, name, &ThresholdRow::name);
  TORCH_CHECK_VALUE(
      row != std::end(threshold_rows), "there is no threshold '", name, "'");
  row->value.store(value, std::memory_order_relaxed);
}

} // namespace at::native::zendnn
