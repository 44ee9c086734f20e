// One step for neighbours that go through the same elements.
#include <torch/csrc/zendnn/plan/infer/Layouts.h>
#include <torch/csrc/zendnn/plan/operators/Pointwise.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <utility>

namespace at::native::zendnn::plan {
namespace {

using kernels::Instruction;
using kernels::kMostPlaces;

constexpr size_t kMostInstructions = 64;

// What an instruction reads.
auto reads(const Instruction& it) {
  const size_t operands = it.kind == Instruction::Kind::choice        ? 3
                          : it.kind == Instruction::Kind::combination ? 2
                                                                      : 1;
  return std::pair(std::array<uint8_t, 3>{it.a, it.b, it.c}, operands);
}

// Sees the places over other sizes of as many elements; returns whether each
// can be seen so.
bool see_over(Pointwise& chain, const Dims& sizes) {
  for (auto& place : chain.places) {
    const auto& strides = place.strides;
    if (is_row_major(chain.sizes, strides)) {
      place.strides = row_major_strides(sizes);
    } else if (std::all_of(strides.begin(), strides.end(), [](int64_t stride) {
                 return stride == 0;
               })) {
      place.strides.assign(sizes.size(), 0);
    } else {
      return false;
    }
  }
  chain.sizes = sizes;
  return true;
}

// Whether the strides lead to the same elements. Those of dimensions of size
// one lead nowhere.
bool lead_alike(const Dims& a, const Dims& b, const Dims& sizes) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 1 && a[i] != b[i]) {
      return false;
    }
  }
  return true;
}

// Whether two places of one buffer and of equal strides have no element in
// common, since in each row the elements of one come before those of the other:
// slices of a concatenation are so.
bool are_apart(
    const Pointwise::At& a,
    const Pointwise::At& b,
    const Dims& sizes) {
  const auto bytes = item_size(a.spec.dtype);
  const auto between = std::abs(a.ref.offset - b.ref.offset);
  if (a.ref.buffer != b.ref.buffer ||
      !lead_alike(a.strides, b.strides, sizes) ||
      item_size(b.spec.dtype) != bytes || between % bytes != 0) {
    return false;
  }
  std::vector<std::pair<int64_t, int64_t>> dims; // strides and sizes
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 1) {
      dims.emplace_back(a.strides[i], sizes[i]);
    }
  }
  if (dims.empty()) {
    return between > 0;
  }
  std::sort(dims.begin(), dims.end());
  const auto row = dims[0].first * dims[0].second;
  if (dims.size() == 1) {
    return between / bytes >= row;
  }
  const auto next_row = dims[1].first;
  if (row == 0 || std::any_of(dims.begin() + 2, dims.end(), [&](auto& dim) {
        return dim.first % next_row != 0;
      })) {
    return false;
  }
  const auto apart = between / bytes % next_row;
  return apart >= row && next_row - apart >= row;
}

// A chain in the making, and the steps that it is made of.
class Chain {
 public:
  explicit Chain(const Buffers& buffers) : buffers_(buffers) {}

  bool empty() const {
    return steps_.empty();
  }

  // Whether the step became a part.
  bool take(const std::shared_ptr<const Step>& step) {
    const auto& part = *step->pointwise;
    if (empty()) {
      steps_.push_back(step);
      return true;
    }
    if (count(part.sizes) != count(steps_[0]->pointwise->sizes)) {
      return false;
    }
    if (steps_.size() == 1) {
      const auto first = std::exchange(steps_, {})[0];
      whole_ = {};
      whole_.sizes = first->pointwise->sizes;
      append(first, *first->pointwise);
    }
    if (part.sizes == whole_.sizes) {
      return append(step, part);
    }
    auto more = part;
    if (see_over(more, whole_.sizes)) {
      return append(step, more);
    }
    auto whole = whole_;
    if (!see_over(whole, part.sizes)) {
      return false;
    }
    whole_ = std::move(whole);
    return append(step, part);
  }

  // The step that does all, whose numbers were [first, last]; `buffers` lose
  // the memory that it does not need.
  std::shared_ptr<const Step>
  finish(int64_t first, int64_t last, Buffers& buffers) {
    const auto steps = std::exchange(steps_, {});
    auto whole = std::exchange(whole_, {});
    if (steps.size() == 1) {
      return steps[0];
    }
    std::vector<TensorSpec> operands;
    double bytes = 0;
    for (size_t i = 0; i < whole.places.size(); ++i) {
      auto& place = whole.places[i];
      const auto& buffer = buffers[place.ref.buffer];
      const bool is_read = !whole.makes_first(i);
      place.is_kept_in_memory = is_read || buffer.kind != BufferKind::arena ||
                                buffer.first < first || buffer.last > last;
      if (!place.is_kept_in_memory) {
        buffers.drop(place.ref.buffer);
        continue;
      }
      if (is_read) {
        operands.push_back(place.spec);
      }
      bytes += static_cast<double>(
          count(place.spec.sizes) * item_size(place.spec.dtype));
    }
    auto step = pointwise_step(std::move(whole));
    step.operands = std::move(operands);
    step.bytes = bytes;
    step.kind = steps[0]->kind;
    for (const auto& part : steps) {
      const auto* const behind = step.implementation.empty() ? "" : ", ";
      step.implementation += behind + part->implementation;
      if (part->node != step.node) { // not another part of the same node
        step.label += (step.label.empty() ? "" : "+") + part->label;
        step.node = part->node;
      }
    }
    return std::make_shared<const Step>(std::move(step));
  }

 private:
  // Whether the step's chain, over the sizes of the whole, could be added.
  bool append(const std::shared_ptr<const Step>& step, const Pointwise& more) {
    const auto before = whole_.places.size();
    std::vector<uint8_t> now; // of each place of the step
    for (size_t i = 0; i < more.places.size(); ++i) {
      const auto known = find(more, i, before);
      if (known == whole_.places.size()) {
        whole_.places.push_back(more.places[i]);
      }
      if (!known || whole_.places.size() > kMostPlaces) {
        whole_.places.resize(before);
        return false;
      }
      now.push_back(static_cast<uint8_t>(*known));
    }
    if (whole_.instructions.size() + more.instructions.size() >
        kMostInstructions) {
      whole_.places.resize(before);
      return false;
    }
    for (auto it : more.instructions) {
      it.a = now[it.a];
      it.b = now[it.b];
      it.c = now[it.c];
      it.out = now[it.out];
      whole_.instructions.push_back(it);
    }
    steps_.push_back(step);
    return true;
  }

  // Which place of the whole another chain's is, or their number where it is a
  // new one; nothing where it may share memory with one of the first `before`,
  // which are of other steps, and one of both is written.
  std::optional<size_t>
  find(const Pointwise& other, size_t index, size_t before) const {
    const auto& wanted = other.places[index];
    auto found = whole_.places.size();
    for (size_t i = 0; i < whole_.places.size(); ++i) {
      const auto& place = whole_.places[i];
      if (place.ref.buffer == wanted.ref.buffer &&
          place.ref.offset == wanted.ref.offset &&
          lead_alike(place.strides, wanted.strides, other.sizes) &&
          item_size(place.spec.dtype) == item_size(wanted.spec.dtype)) {
        found = i;
      } else if (
          i < before && (other.makes(index) || whole_.makes(i)) &&
          buffers_.have_one_holder(place.ref, wanted.ref) &&
          !are_apart(place, wanted, other.sizes)) {
        return std::nullopt;
      }
    }
    return found;
  }

  const Buffers& buffers_;
  Pointwise whole_;
  std::vector<std::shared_ptr<const Step>> steps_;
};

} // namespace

bool Pointwise::makes(size_t place) const {
  return std::any_of(
      instructions.begin(), instructions.end(), [&](const Instruction& it) {
        return it.out == place;
      });
}

bool Pointwise::makes_first(size_t place) const {
  for (const auto& it : instructions) {
    const auto [operands, count] = reads(it);
    if (std::find(operands.begin(), operands.begin() + count, place) !=
        operands.begin() + count) {
      return false;
    }
    if (it.out == place) {
      return true;
    }
  }
  return false;
}

void fuse_pointwise(
    std::vector<std::shared_ptr<const Step>>& steps,
    Buffers& buffers) {
  const auto before = std::exchange(steps, {});
  std::vector<int64_t> now; // of each step before
  Chain chain(buffers);
  const auto end_chain = [&] {
    if (!chain.empty()) {
      const auto last = std::ssize(now) - 1;
      const auto first =
          std::find(now.begin(), now.end(), now.back()) - now.begin();
      steps.push_back(chain.finish(first, last, buffers));
    }
  };
  for (const auto& step : before) {
    if (step->pointwise != nullptr) {
      if (!chain.take(step)) {
        end_chain();
        chain.take(step);
      }
      now.push_back(std::ssize(steps));
    } else {
      end_chain();
      now.push_back(std::ssize(steps));
      steps.push_back(step);
    }
  }
  end_chain();
  now.push_back(std::ssize(steps)); // for what no step needs
  buffers.renumber(now);
}

} // namespace at::native::zendnn::plan
