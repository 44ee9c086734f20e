#include <torch/csrc/zendnn/plan/build/Arena.h>

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <new>
#include <utility>

namespace at::native::zendnn::plan {
namespace {

// torch has no type of its own for what its allocator of the CPU throws.
template <typename Take>
auto or_bad_alloc(const Take& take) {
  try {
    return take();
  } catch (const c10::Error&) {
    throw std::bad_alloc();
  }
}

} // namespace

std::shared_ptr<void> allocate(int64_t bytes) {
  auto memory = std::make_shared<c10::DataPtr>(or_bad_alloc([&] {
    return c10::GetCPUAllocator()->allocate(static_cast<size_t>(bytes));
  }));
  auto* data = memory->get();
  return {std::move(memory), data};
}

TensorSpec spec_of(const Tensor& tensor) {
  return {tensor.sizes().vec(), tensor.strides().vec(), tensor.scalar_type()};
}

Tensor empty(const TensorSpec& spec) {
  return or_bad_alloc([&] {
    return at::detail::empty_strided_cpu(
        spec.sizes, spec.strides, spec.dtype, /*pin_memory=*/false);
  });
}

Tensor zeros(const TensorSpec& spec) {
  auto result = empty(spec);
  std::memset(result.mutable_data_ptr(), 0, result.storage().nbytes());
  return result;
}

} // namespace at::native::zendnn::plan
