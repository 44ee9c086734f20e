// Constants: as they are, in other layouts, and joined.
#include <torch/csrc/zendnn/plan/Builder.h>

#include <ATen/native/zendnn/kernels/memory.h>

#include <cstring>

namespace at::native::zendnn::plan {
namespace {

// Writes contiguous constants one behind the other.
Fill joint_copy_of(std::vector<Tensor> constants) {
  return [constants = std::move(constants)](void* memory) {
    auto* next = static_cast<char*>(memory);
    for (const auto& constant : constants) {
      std::memcpy(next, constant.const_data_ptr(), constant.nbytes());
      next += constant.nbytes();
    }
  };
}

} // namespace

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
  for (size_t i = 0; i < constants_.size(); ++i) {
    const auto value = description_.constants[i];
    const auto buffer = add_buffer(
        {.kind = BufferKind::constant,
         .data = static_cast<char*>(
             const_cast<void*>(constants_[i].const_data_ptr()))});
    set_place(value, {.ref = {buffer, 0}, .strides = strides(value)});
  }
}

// Nothing goes behind the place that a constant came in.
const Place& Builder::own_place(int64_t constant) const {
  return places_[constant].back();
}

std::vector<Tensor> Builder::joined_parts(int64_t value) const {
  std::vector<Tensor> parts;
  for (const auto part : values_[value].joined) {
    parts.push_back(constants_[part]);
  }
  return parts;
}

Fill Builder::plain_weights(int64_t value, const memory::desc& layout) const {
  if (is_joined(value)) {
    return joint_copy_of(joined_parts(value));
  }
  return [weight = *constant(value), bytes = layout.get_size()](void* memory) {
    std::memcpy(memory, weight.const_data_ptr(), bytes);
  };
}

std::string Builder::weight_name(int64_t value) const {
  if (!is_joined(value)) {
    return std::to_string(values_[value].constant);
  }
  std::string name = "joined";
  for (const auto part : values_[value].joined) {
    name += ' ' + std::to_string(part);
  }
  return name;
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
    return pack(name, joint_copy_of(joined_parts(value)), from, to);
  }
  const auto own = own_place(value).ref;
  if (from == to) {
    return own;
  }
  return prepared(
      packed_key(name, from, to),
      static_cast<int64_t>(to.get_size()),
      [from, to, data = buffers_[own.buffer].data](void* memory) {
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
      pieces_.emplace_back(packed_.get(key, bytes, std::move(fill)));
  return {
      add_buffer(
          {.kind = BufferKind::constant,
           .data = static_cast<char*>(piece->memory())}),
      0};
}

} // namespace at::native::zendnn::plan
