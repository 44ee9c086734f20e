// Constants: as they are, in other layouts, and joined.
#include <torch/csrc/zendnn/plan/Builder.h>

#include <ATen/Parallel.h>
#include <ATen/native/zendnn/kernels/memory.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace at::native::zendnn::plan {
Fill copy_of(const Tensor& constant) {
  check_copied(item_size(constant.scalar_type()));
  return [constant](void* memory) {
    const auto strides = row_major_strides(constant.sizes().vec());
    kernels::copy_strided(
        {.src = constant.const_data_ptr(),
         .src_strides = constant.strides().data(),
         .dst = memory,
         .dst_strides = strides.data(),
         .sizes = constant.sizes().data(),
         .ndim = constant.dim(),
         .itemsize = item_size(constant.scalar_type())});
  };
}

void Builder::place_constants() {
  if (before_ != nullptr) {
    made_constants_ = before_->constants;
    return repeat(*made_constants_);
  }
  for (size_t i = 0; i < constants_.size(); ++i) {
    const auto value = description_.constants[i];
    set_place(
        value,
        {.ref =
             constant_buffer(const_cast<void*>(constants_[i].const_data_ptr())),
         .strides = strides(value)});
  }
  made_constants_ = made();
}

Fill Builder::plain_weights(int64_t value, int64_t most) const {
  Tensors parts;
  for (const auto part : parts_of(value)) {
    parts.push_back(constants_[part]);
  }
  return [parts = std::move(parts), most](void* memory) {
    constexpr int64_t kGrain = 1 << 20; // bytes that a thread copies, at least
    auto* next = static_cast<char*>(memory);
    auto left = most;
    for (const auto& part : parts) {
      const auto bytes = std::min(
          left,
          span(part.sizes().vec(), part.strides().vec()) *
              item_size(part.scalar_type()));
      left -= bytes;
      const auto* data = static_cast<const char*>(part.const_data_ptr());
      at::parallel_for(0, bytes, kGrain, [&](int64_t begin, int64_t end) {
        std::memcpy(next + begin, data + begin, end - begin);
      });
      next += bytes;
    }
  };
}

std::string Builder::weight_name(int64_t value) const {
  return c10::Join(" ", parts_of(value));
}

bool Builder::is_packed(
    int64_t value,
    const memory::desc& from,
    const memory::desc& to) {
  return (from == to && !is_joined(value)) ||
         packed_.has(packed_key(weight_name(value), from, to));
}

Ref Builder::packed(
    int64_t value,
    const memory::desc& from,
    const memory::desc& to) {
  const auto name = weight_name(value);
  if (is_joined(value)) {
    return pack(name, plain_weights(value), from, to);
  }
  const auto own = own_place(value).ref;
  if (from == to) {
    return own;
  }
  return prepared(
      packed_key(name, from, to),
      static_cast<int64_t>(to.get_size()),
      [from, to, data = lying_weights(value)](void* memory) {
        reorder_now(from, data, to, memory);
      });
}

Ref Builder::pack(
    const std::string& name,
    Fill copy,
    const memory::desc& from,
    const memory::desc& to) {
  if (from != to) {
    copy = [from, to, copy = std::move(copy)](void* memory) {
      const auto whole = allocate(static_cast<int64_t>(from.get_size()));
      copy(whole.get());
      reorder_now(from, whole.get(), to, memory);
    };
  }
  return prepared(
      packed_key(name, from, to),
      static_cast<int64_t>(to.get_size()),
      std::move(copy));
}

std::string Builder::packed_key(
    const std::string& name,
    const memory::desc& from,
    const memory::desc& to) {
  return name + ' ' + std::to_string(packed_.number_of(from)) + ' ' +
         std::to_string(packed_.number_of(to));
}

Ref Builder::prepared(const std::string& key, int64_t bytes, Fill fill) {
  const auto& piece =
      now_.part.pieces.emplace_back(packed_.get(key, bytes, std::move(fill)));
  return constant_buffer(piece->memory());
}

} // namespace at::native::zendnn::plan
