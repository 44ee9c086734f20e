// Constants: as they are, in other layouts, and joined.
#include <torch/csrc/zendnn/plan/Builder.h>

#include <ATen/native/zendnn/Operands.h>
#include <ATen/native/zendnn/kernels/memory.h>

#include <cstring>
#include <map>

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
    const auto value = description_.constants.at(i);
    const auto& constant = constants_[i];
    if (!is_plain(constant)) {
      refuse("a constant that is not a dense CPU tensor");
    }
    if (constant.numel() == 0) {
      refuse("an empty tensor");
    }
    values_[value].constant = static_cast<int64_t>(i);
    const auto strides = constant.strides().vec();
    set_type(value, constant.sizes().vec(), constant.scalar_type(), strides);
    const auto buffer = add_buffer(
        {.kind = BufferKind::constant,
         .data =
             static_cast<char*>(const_cast<void*>(constant.const_data_ptr()))});
    set_place(value, {.ref = {buffer, 0}, .strides = strides});
  }
}

// Joining what linear layers read makes copies that are as large as the
// weights; packing each when it is wanted keeps none of them.
void Builder::find_joined() {
  std::map<int64_t, int64_t> reads, reads_as_weight;
  for (size_t k = 0; k < description_.nodes.size(); ++k) {
    const auto& node = description_.nodes[k];
    const bool packs = node.op == "linear" &&
                       find_left(left_, static_cast<int64_t>(k)) == nullptr;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i].kind == Operand::Kind::value) {
        ++reads[node.inputs[i].index];
        reads_as_weight[node.inputs[i].index] += packs && i == 1;
      }
    }
  }
  for (const auto value : description_.outputs) {
    ++reads[value];
  }
  for (const auto& node : description_.nodes) {
    if (node.op != "cat" || node.get(attr::cat::dim) != 0 ||
        reads[node.output()] != reads_as_weight[node.output()]) {
      continue;
    }
    std::vector<int64_t> parts;
    for (const auto& operand : node.inputs) {
      const auto part = values_[operand.index].constant;
      if (part >= 0 && constants_[part].dim() == 2 &&
          constants_[part].is_contiguous()) {
        parts.push_back(part);
      }
    }
    if (parts.size() == node.inputs.size()) {
      values_[node.output()].joined = std::move(parts);
    }
  }
}

// Nothing goes behind the place that a constant came in.
const Place& Builder::own_place(int64_t constant) const {
  return values_[constant].places.back();
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

Ref Builder::packed(
    int64_t value,
    const memory::desc& from,
    const memory::desc& to) {
  if (is_joined(value)) {
    std::string name = "joined";
    for (const auto part : values_[value].joined) {
      name += ' ' + std::to_string(part);
    }
    return pack(name, joint_copy_of(joined_parts(value)), from, to);
  }
  const auto own = own_place(value).ref;
  if (from == to) {
    return own;
  }
  return prepared(
      packed_key(std::to_string(values_[value].constant), from, to),
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
