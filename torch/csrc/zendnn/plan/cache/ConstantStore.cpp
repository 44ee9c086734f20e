#include <torch/csrc/zendnn/plan/cache/ConstantStore.h>

#include <ATen/TracerMode.h>
#include <ATen/native/zendnn/Operands.h>
#include <c10/core/CPUAllocator.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

namespace at::native::zendnn::plan {
namespace {

// Only for private memory, which the kernel fills with zeros at the next touch.
bool discard(void* data, size_t bytes) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page;
  const auto end = (reinterpret_cast<uintptr_t>(data) + bytes) / page;
  return begin < end && madvise(
                            reinterpret_cast<void*>(begin * page),
                            (end - begin) * page,
                            MADV_DONTNEED) == 0;
}

// Others may refer to memory that no allocator of torch's made.
bool is_from_allocator(const c10::DataPtr& data) {
  const auto deleter = data.get_deleter();
  return deleter == c10::GetCPUAllocator()->raw_deleter() ||
         deleter == c10::GetDefaultCPUAllocator()->raw_deleter();
}

// Newer torches keep the Python object of a storage, which refers to it in
// turn, as long as the storage lives. Weak references to either keep no
// elements.
template <typename Slot>
bool is_only_kept(const Slot* object) {
  if constexpr (requires { object->has_unique_reference(); }) {
    return object->has_unique_reference();
  }
  return false;
}

bool has_one_holder(const c10::Storage& storage) {
  const auto holders = storage.use_count();
  return holders == 1 ||
         (holders == 2 &&
          is_only_kept(storage.unsafeGetStorageImpl()->pyobj_slot()));
}

// Unpacks the form; `to` says where each part goes, null for nowhere.
void unpack(
    const ConstantStore::Form& form,
    const Tensors& constants,
    const std::function<void*(int64_t part)>& to) {
  if (form.parts.size() == 1) {
    return reorder_now(
        form.packed, form.piece->memory(), form.plain, to(form.parts[0]));
  }
  const auto whole = allocate(static_cast<int64_t>(form.plain.get_size()));
  reorder_now(form.packed, form.piece->memory(), form.plain, whole.get());
  const auto* next = static_cast<const char*>(whole.get());
  for (const auto part : form.parts) {
    if (auto* const data = to(part)) {
      std::memcpy(data, next, constants[part].nbytes());
    }
    next += constants[part].nbytes();
  }
}

// A tensor that nobody else has, so that it is known who has its memory. Those
// that gradients and tracers know stay themselves.
Tensor apart(const Tensor& tensor) {
  return is_plain(tensor) && !tensor.requires_grad() &&
                 !at::tracer::impl::is_dispatch_enabled()
             ? Tensor(tensor.getIntrusivePtr()->shallow_copy_and_detach(
                   tensor.unsafeGetTensorImpl()->version_counter(),
                   /*allow_tensor_metadata_change=*/false))
             : tensor;
}

} // namespace

ConstantStore::ConstantStore(Tensors constants)
    : constants_(std::move(constants)),
      pins_(constants_.size()),
      kept_(constants_.size()) {
  std::transform(
      constants_.begin(), constants_.end(), constants_.begin(), apart);
}

ConstantStore::Pin ConstantStore::pin(int64_t index) {
  const std::lock_guard lock(mutex_);
  bring_back(index);
  ++pins_[index];
  return {
      constants_[index].const_data_ptr(),
      [store = shared_from_this(), index](const void*) {
        const std::lock_guard lock(store->mutex_);
        --store->pins_[index];
      }};
}

void ConstantStore::bring_back(int64_t index) {
  if (const auto form = kept_[index]) {
    unpack(*form, constants_, [&](int64_t part) {
      return kept_[part] == form
                 ? const_cast<void*>(constants_[part].const_data_ptr())
                 : nullptr;
    });
    for (const auto part : form->parts) {
      if (kept_[part] == form) {
        kept_[part] = nullptr;
      }
    }
    waits_ = true;
  }
}

Tensors ConstantStore::whole() {
  const std::lock_guard lock(mutex_);
  Tensors results;
  for (size_t i = 0; i < constants_.size(); ++i) {
    const auto& constant = constants_[i];
    if (const auto& form = kept_[i]) {
      auto copy = empty(spec_of(constant));
      unpack(*form, constants_, [&](int64_t part) -> void* {
        return part == static_cast<int64_t>(i) ? copy.mutable_data_ptr()
                                               : nullptr;
      });
      results.push_back(std::move(copy));
    } else {
      results.push_back(handed_out(static_cast<int64_t>(i)));
    }
  }
  return results;
}

Tensors ConstantStore::restored() {
  const std::lock_guard lock(mutex_);
  Tensors results;
  for (size_t i = 0; i < constants_.size(); ++i) {
    bring_back(static_cast<int64_t>(i));
    results.push_back(handed_out(static_cast<int64_t>(i)));
  }
  return results;
}

Tensor ConstantStore::handed_out(int64_t index) {
  for (auto& offer : offers_) {
    offer.is_proven = false;
  }
  return apart(constants_[index]);
}

void ConstantStore::offer(const std::vector<Form>& forms) {
  const std::lock_guard lock(mutex_);
  std::erase_if(
      offers_, [](const Offer& offer) { return offer.piece.expired(); });
  for (const auto& form : forms) {
    size_t bytes = 0;
    for (const auto part : form.parts) {
      bytes += constants_[part].nbytes();
    }
    const bool is_known =
        std::any_of(offers_.begin(), offers_.end(), [&](const Offer& offer) {
          return offer.piece.lock() == form.piece;
        });
    if (!is_known && bytes == form.plain.get_size()) {
      offers_.push_back({form.parts, form.piece, form.plain, form.packed});
    }
  }
  waits_ = !offers_.empty();
  calls_ = 0;
}

bool ConstantStore::is_sole_holder(int64_t index) const {
  const auto& constant = constants_[index];
  const auto& storage = constant.storage();
  return constant.nbytes() >= kLeastReleasedBytes &&
         constant.use_count() == 1 && has_one_holder(storage) &&
         is_from_allocator(storage.data_ptr()) &&
         constant.storage_offset() == 0 &&
         constant.nbytes() == storage.nbytes() &&
         constant.is_non_overlapping_and_dense();
}

bool ConstantStore::holds_bits(const Form& form) const {
  std::vector<std::pair<int64_t, std::shared_ptr<void>>> parts;
  unpack(form, constants_, [&](int64_t part) {
    auto memory = allocate(static_cast<int64_t>(constants_[part].nbytes()));
    parts.emplace_back(part, memory);
    return memory.get();
  });
  return std::all_of(parts.begin(), parts.end(), [&](const auto& part) {
    const auto& constant = constants_[part.first];
    return are_same_bytes(
        constant.const_data_ptr(),
        part.second.get(),
        static_cast<int64_t>(constant.nbytes()));
  });
}

void ConstantStore::release(Offer& offer) {
  auto piece = offer.piece.lock();
  if (offer.is_refuted || !piece || !piece->is_filled() ||
      !std::all_of(offer.parts.begin(), offer.parts.end(), [&](int64_t part) {
        return kept_[part] == nullptr && pins_[part] == 0 &&
               is_sole_holder(part);
      })) {
    return;
  }
  const auto form = std::make_shared<const Form>(
      Form{offer.parts, std::move(piece), offer.plain, offer.packed});
  if (!offer.is_proven) {
    offer.is_proven = holds_bits(*form);
    offer.is_refuted = !offer.is_proven;
  }
  for (const auto part : offer.parts) {
    const auto& constant = constants_[part];
    if (offer.is_proven &&
        discard(
            const_cast<void*>(constant.const_data_ptr()), constant.nbytes())) {
      kept_[part] = form;
    }
  }
}

void ConstantStore::release() noexcept {
  const std::lock_guard lock(mutex_);
  try {
    for (auto& offer : offers_) {
      release(offer);
    }
  } catch (...) { // no memory to compare in; what is released has its form
  }
  waits_ = std::any_of(offers_.begin(), offers_.end(), [&](const auto& offer) {
    return !offer.is_refuted &&
           std::any_of(
               offer.parts.begin(), offer.parts.end(), [&](int64_t part) {
                 return kept_[part] == nullptr;
               });
  });
}

void ConstantStore::release_later() noexcept {
  if (!waits_.load(std::memory_order_relaxed)) {
    return;
  }
  const auto calls = calls_.fetch_add(1, std::memory_order_relaxed) + 1;
  if ((calls & (calls - 1)) == 0) {
    release();
  }
}

bool ConstantStore::is_owned(int64_t index) const {
  const std::lock_guard lock(mutex_);
  return kept_[index] != nullptr || is_sole_holder(index);
}

int64_t ConstantStore::released_bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t bytes = 0;
  for (size_t i = 0; i < kept_.size(); ++i) {
    bytes +=
        kept_[i] == nullptr ? 0 : static_cast<int64_t>(constants_[i].nbytes());
  }
  return bytes;
}

} // namespace at::native::zendnn::plan
