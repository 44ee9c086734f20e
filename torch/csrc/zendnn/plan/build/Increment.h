// A build for other sizes, of which most repeats the build before.
//
// One build owns an increment, in one thread, without a lock; what it repeats
// never changes.
#pragma once

#include <torch/csrc/zendnn/plan/build/Buffers.h>
#include <torch/csrc/zendnn/plan/infer/Values.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace at::native::zendnn::plan {

// How activations with spatial dimensions are laid out inside a region.
enum class Layout : uint8_t {
  row_major,
  channels_last,
  blocked // sixteen channels together
};
inline const char* name_of(Layout layout) {
  switch (layout) {
    case Layout::row_major:
      return "row major";
    case Layout::channels_last:
      return "channels last";
    case Layout::blocked:
      return "blocked";
  }
  return "";
}

// Where a value is, and how its elements lie there.
struct Place {
  Ref ref{};
  std::optional<memory::desc> blocked{}; // the layout of a blocked place
  Dims strides{}; // of a plain one; zero strides stand for repeated elements
};

// All that building one node has added, in order.
struct NodeBuild {
  // A place of a value.
  struct At {
    int64_t value;
    std::shared_ptr<const Place> place;
    bool is_best;
  };
  Program part{};
  std::vector<At> places{};
  std::vector<std::pair<Ref, int64_t>> touched{}; // by which step
  bool is_final = true; // no build would choose other implementations
  bool is_timed = true; // nor would one that may time
};

// A build of the same region for another call.
struct Predecessor {
  Inferred inferred;
  std::shared_ptr<const NodeBuild> constants;
  std::vector<std::shared_ptr<const NodeBuild>> nodes; // of each node
  Layout layout;
  int threads;
  bool tunes; // with a budget
};

// Finds the nodes of a build whose operands have the types and places that they
// had for the predecessor. Such nodes add what they added there.
class Increment {
 public:
  Increment(const Predecessor* before, std::vector<bool> unchanged)
      : before_(before), unchanged_(std::move(unchanged)) {}

  // What the constants added; null without a predecessor.
  std::shared_ptr<const NodeBuild> constants() const {
    return before_ == nullptr ? nullptr : before_->constants;
  }
  // What the node added, if it would add the same now; else null. `is_placed`
  // are values that the node does not place itself.
  std::shared_ptr<const NodeBuild> find(
      const Values& values,
      int64_t node,
      const std::function<bool(int64_t)>& is_placed) const;
  // Compares what a node has added with what it added before. If that was the
  // same in kind, values that lie elsewhere now are changed; else the
  // predecessor says nothing of the nodes that come.
  void follow(const Values& values, int64_t node, const NodeBuild& now);

 private:
  // What the node added before, whether or not it would now.
  std::shared_ptr<const NodeBuild> before(int64_t node) const {
    return before_ != nullptr && node < std::ssize(before_->nodes)
               ? before_->nodes[node]
               : nullptr;
  }

  const Predecessor* before_; // null from where this build differs in kind
  // Of the region's own values, those that have the type and the place that
  // they had before.
  std::vector<bool> unchanged_;
};

} // namespace at::native::zendnn::plan
