// A tensor as it was when something was made from it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/native/zendnn/UnseenWrites.h>

#include <cstdint>
#include <utility>

namespace at::native::zendnn {

// Which tensor it was, where its elements lay and in which version. It is not
// kept alive. Tensors made in inference mode have no version.
class Seen {
 public:
  explicit Seen(const Tensor& tensor)
      : tensor_(tensor.getIntrusivePtr()),
        data_(data_of(tensor)),
        version_(version_of(tensor)),
        writes_(unseen_writes::count()) {}

  // The address of a tensor that is gone stays taken.
  bool is(const Tensor& tensor) const {
    return tensor_._unsafe_get_target() == tensor.unsafeGetTensorImpl();
  }

  bool is_unchanged(const Tensor& tensor) const {
    return is(tensor) && data_ == data_of(tensor) &&
           version_ == version_of(tensor) &&
           !unseen_writes::are_in(tensor, writes_);
  }

  bool is_gone() const {
    return tensor_.expired();
  }

  // The tensor, undefined once it is gone.
  Tensor lock() const {
    auto held = tensor_.lock();
    return held ? Tensor(std::move(held)) : Tensor();
  }

 private:
  static uint32_t version_of(const Tensor& tensor) {
    auto* const impl = tensor.unsafeGetTensorImpl();
    return impl->is_inference() ? 0 : impl->version_counter().current_version();
  }
  // Tensors may be parts of one storage; that of a fake one is empty.
  static uintptr_t data_of(const Tensor& tensor) {
    auto* const impl = tensor.unsafeGetTensorImpl();
    return reinterpret_cast<uintptr_t>(impl->unsafe_storage().data()) +
           impl->storage_offset() * impl->itemsize();
  }

  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor_;
  uintptr_t data_;
  uint32_t version_;
  uint64_t writes_;
};

} // namespace at::native::zendnn
