#include <torch/csrc/zendnn/plan/build/Increment.h>

#include <algorithm>

namespace at::native::zendnn::plan {
namespace {

bool are_alike(const Buffer& a, const Buffer& b) {
  return a.kind == b.kind && a.index == b.index && a.data == b.data &&
         a.offset == b.offset && a.first == b.first;
}

bool are_in_kind(const NodeBuild::At& a, const NodeBuild::At& b) {
  return a.value == b.value && a.is_best == b.is_best &&
         a.place->blocked.has_value() == b.place->blocked.has_value() &&
         a.place->ref.buffer == b.place->ref.buffer;
}

bool is_same_place(const Place& a, const Place& b) {
  return a.ref.buffer == b.ref.buffer && a.ref.offset == b.ref.offset &&
         a.strides == b.strides && a.blocked == b.blocked;
}

template <typename List, typename Alike>
bool all(const List& a, const List& b, const Alike& alike) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), alike);
}

} // namespace

std::shared_ptr<const NodeBuild> Increment::find(
    const Values& values,
    int64_t index,
    const std::function<bool(int64_t)>& is_placed) const {
  const auto known = before(index);
  // Parts of a node that was taken apart are made anew, so that the values of a
  // node that is the same as before are the region's own.
  const auto& node = values.nodes()[index];
  if (known == nullptr || !known->is_final ||
      node != before_->inferred.nodes[index]) {
    return nullptr;
  }
  const auto is_unchanged = [&](int64_t value) { return unchanged_[value]; };
  const auto read = node->reads();
  const bool repeats =
      std::all_of(read.begin(), read.end(), is_unchanged) &&
      std::all_of(
          node->outputs.begin(), node->outputs.end(), [&](int64_t value) {
            return is_unchanged(value) && !is_placed(value);
          });
  return repeats ? known : nullptr;
}

void Increment::follow(
    const Values& values,
    int64_t index,
    const NodeBuild& now) {
  const auto known = before(index);
  if (known == nullptr ||
      values.written(index) != before_->inferred.written[index] ||
      now.part.steps.size() != known->part.steps.size() ||
      !all(now.part.buffers, known->part.buffers, are_alike) ||
      !all(now.places, known->places, are_in_kind)) {
    before_ = nullptr;
    return;
  }
  for (size_t i = 0; i < now.places.size(); ++i) {
    const auto& [value, place, is_best] = now.places[i];
    if (value < std::ssize(unchanged_) &&
        !is_same_place(*place, *known->places[i].place)) {
      unchanged_[value] = false;
    }
  }
}

} // namespace at::native::zendnn::plan
