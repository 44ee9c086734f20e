// Constants: as they are, in other layouts, and joined.
#include <torch/csrc/zendnn/plan/build/Product.h>

#include <ATen/Parallel.h>
#include <ATen/native/zendnn/kernels/memory.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace at::native::zendnn::plan {

Fill Builder::copy_of(int64_t index) const {
  const auto& constant = constant_at(index);
  check_copied(item_size(constant.scalar_type()));
  return [constant, index, store = values_.store()](void* memory) {
    const auto pin = store->pin(index);
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

Fill reordered(Fill copy, const memory::desc& from, const memory::desc& to) {
  if (from == to) {
    return copy;
  }
  return [from, to, copy = std::move(copy)](void* memory) {
    const auto whole = allocate(static_cast<int64_t>(from.get_size()));
    copy(whole.get());
    reorder_now(from, whole.get(), to, memory);
  };
}

void Builder::place_constants() {
  built_constants_ = increment_.constants();
  if (built_constants_ != nullptr) {
    return repeat(*built_constants_);
  }
  const auto& all = values_.description().constants;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto value = all[i];
    set_place(
        value,
        {.ref = constant_buffer(
             const_cast<void*>(constant_at(i).const_data_ptr())),
         .strides = values_.strides(value)});
  }
  built_constants_ = finish();
}

Fill Builder::plain_weights(int64_t value, int64_t most) const {
  return [parts = values_.parts_of(value), store = values_.store(), most](
             void* memory) {
    constexpr int64_t kGrain = 1 << 20; // bytes that a thread copies, at least
    auto* next = static_cast<char*>(memory);
    auto left = most;
    for (const auto index : parts) {
      const auto pin = store->pin(index);
      const auto& part = store->tensors()[index];
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

Lying Builder::lying_weights(int64_t value) const {
  if (values_.is_joined(value)) {
    return {};
  }
  return [store = values_.store(), index = values_.constant_index(value)] {
    return store->pin(index);
  };
}

const Weight& Builder::weight(int64_t value) const {
  const auto known = weights_.find(value);
  if (known != weights_.end()) {
    return known->second;
  }
  Tensors parts;
  for (const auto part : values_.parts_of(value)) {
    parts.push_back(constant_at(part));
  }
  const bool of_images = values_.sizes(value).size() > 2;
  return weights_.emplace(value, Weight(parts, of_images)).first->second;
}

std::string Builder::form(int64_t value, const Implementation& implementation)
    const {
  if (implementation.pack) {
    return ' ' + implementation.name;
  }
  auto from = implementation.plain, to = implementation.weights;
  if (from == to && !values_.is_joined(value)) {
    return "";
  }
  // Inner products see a matrix the other way round, and pack it alike.
  if (from.get_ndims() == 2 && from.get_strides() == values_.strides(value)) {
    from = from.permute_axes({1, 0});
    to = to.permute_axes({1, 0});
  }
  return ' ' + std::to_string(number_of(from)) + '-' +
         std::to_string(number_of(to));
}

Supply Builder::supply(int64_t value, const Implementation& implementation)
    const {
  const auto name = form(value, implementation);
  if (name.empty()) {
    return values_.store()->is_owned(values_.constant_index(value))
               ? Supply::owned
               : Supply::lying;
  }
  const auto& of = weight(value);
  const auto& all = Forms::all();
  const auto bytes = static_cast<int64_t>(implementation.weights.get_size());
  return all.has(of, name, claim_)         ? Supply::packed
         : all.has_room(of, bytes, claim_) ? Supply::room
                                           : Supply::none;
}

std::string Builder::forms(int64_t value) const {
  return Forms::all().list(weight(value), claim_);
}

Fill Builder::packing(int64_t value, const Implementation& implementation)
    const {
  if (implementation.pack) {
    return implementation.pack;
  }
  const auto &from = implementation.plain, &to = implementation.weights;
  if (const auto lying = lying_weights(value)) {
    return [from, to, lying](void* memory) {
      const auto data = lying();
      reorder_now(from, data.get(), to, memory);
    };
  }
  return reordered(plain_weights(value), from, to);
}

Ref Builder::packed(int64_t value, const Implementation& implementation) {
  const auto name = form(value, implementation);
  if (name.empty()) {
    return own_place(value).ref;
  }
  auto piece = packed_.get(
      weight(value),
      name,
      static_cast<int64_t>(implementation.weights.get_size()),
      packing(value, implementation),
      [&] {
        uint64_t digest = 0;
        for (const auto part : values_.parts_of(value)) {
          const auto pin = values_.store()->pin(part);
          digest = digest_of(constant_at(part), digest);
        }
        return digest;
      });
  Forms::all().claim(claim_, piece);
  if (!implementation.pack) { // our own packing has no inverse
    now_.part.forms.push_back(
        {values_.parts_of(value),
         piece,
         implementation.plain,
         implementation.weights});
  }
  return piece_buffer(std::move(piece));
}

Ref Builder::prepared(const std::string& key, int64_t bytes, Fill fill) {
  return piece_buffer(packed_.get(key, bytes, std::move(fill)));
}

Ref Builder::piece_buffer(std::shared_ptr<Piece> piece) {
  auto* const data = piece->memory();
  now_.part.pieces.push_back(std::move(piece));
  return constant_buffer(data);
}

} // namespace at::native::zendnn::plan
