// Turns a description into an executable for the sizes at hand: decides where
// each value lives and in which layout, and which steps make it.
//
// One thread owns a builder, without a lock. The program that it makes belongs
// to the executable. Prepared buffers (Packed) and chosen implementations
// (Shared) are the plan's, packed weights (Forms) the process's; each of these
// has a lock of its own.
#pragma once

#include <torch/csrc/zendnn/plan/build/Buffers.h>
#include <torch/csrc/zendnn/plan/build/Increment.h>
#include <torch/csrc/zendnn/plan/cache/Forms.h>
#include <torch/csrc/zendnn/plan/infer/Values.h>
#include <torch/csrc/zendnn/plan/operators/Pointwise.h>
#include <torch/csrc/zendnn/plan/tune/Tuner.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace at::native::zendnn::plan {

// What memory weights need: none if they are used as they lie, or packed
// already; that of the weight where the plan would else release what lies
// there; for others there may be room to pack them.
enum class Supply : uint8_t { lying, packed, owned, room, none };

// Finds where values lie, and which steps make them.
class Builder {
 public:
  Builder(
      Values values,
      Packed& packed,
      Shared<const Implementation>& chosen,
      Layout layout,
      double& tuning_seconds,
      const Predecessor* before = nullptr)
      : values_(std::move(values)),
        packed_(packed),
        chosen_(chosen),
        layout_(layout),
        tuning_seconds_(tuning_seconds),
        tunes_(tuning_seconds > 0),
        increment_(before, values_.unchanged()),
        places_(values_.count()) {}

  // Throws Refused when there is something that a plan does not take; where it
  // is one node, RefusedNode.
  std::unique_ptr<Executable> build();
  // After that: whether a build that may time would choose the same.
  bool is_timed() const;
  // After that, for other calls.
  Predecessor predecessor() &&;

  const Values& values() const {
    return values_;
  }

  // ---- Reading ------------------------------------------------------------
  // The best place that the value has now; converts nothing.
  const Place& place(int64_t value) const;
  // Row by row, or with whatever strides it has.
  Place dense(int64_t value);
  Place strided(int64_t value);
  // With these strides, which leave no gaps.
  Place with_strides(int64_t value, const Dims& strides);
  // With the elements of the last dimension side by side, or only one of them;
  // what is repeated along other dimensions stays so.
  Place with_rows(int64_t value);
  // In this very layout.
  Ref in_layout(int64_t value, const memory::desc& layout);
  // The description of a plain place, for a primitive.
  memory::desc describe(int64_t value, const Place& place) const;
  // A plain place whose elements do not overlap, for a primitive.
  Place addressable(int64_t value);
  // If the best place is in blocks: in blocks without gaps between images,
  // which slices have. Primitives lose more time to gaps than a copy takes.
  Place solid_blocks(int64_t value);
  // How that place will be described; converts nothing.
  memory::desc addressable_layout(int64_t value) const;
  // The memory that is the value's own, to be written; throws Refused where it
  // has none, or several.
  Place own_memory(int64_t value) const;
  // A plain place of the value in the same buffer.
  std::optional<Place> place_in(int64_t value, Ref whole) const;
  // Whether two plain places can share memory.
  bool may_overlap(int64_t a, const Place& of_a, int64_t b, const Place& of_b)
      const;

  // ---- Writing ------------------------------------------------------------
  // A new row-major place, in a result or in the concatenation that it is a
  // part of, where the value is either.
  Place make_dense(int64_t value);
  // The same, where rows may be further apart than they are long.
  Place make_rows(int64_t value);
  // A new place in this layout.
  Place make(int64_t value, const memory::desc& layout);
  // A place in the concatenation that the value is a part of, in its layout.
  std::optional<Place> target(int64_t value);
  // The place so many bytes behind this one, at each call.
  Ref moved(Ref from, const Number& bytes);
  bool is_result(int64_t value) const {
    return results_.contains(value);
  }
  // Returns the place.
  const Place& set_place(int64_t value, Place place);
  // Whether the current node can overwrite this place, one of the value's.
  bool dies(int64_t value, const Place& place) const;
  // Makes that place of the input the output's, where the node can write over
  // it and the output need not be elsewhere.
  bool reuse(int64_t output, int64_t input, const Place& from);
  // A row-major place for a result of the input's size: over the input where
  // reuse() allows it, else a new one.
  Place make_over(int64_t output, int64_t input, const Place& from) {
    return reuse(output, input, from) ? from : make_dense(output);
  }
  // Memory for the current step alone.
  Ref scratch(int64_t bytes) {
    return bytes > 0 ? arena(bytes) : Ref{};
  }

  // ---- Steps ---------------------------------------------------------------
  // Gives the primitive the scratchpad that it wants. It must have been made
  // with user_scratchpad(): ZenDNN's own is one for all threads.
  void add_primitive(
      const Node& node,
      const ::zendnn::primitive& primitive,
      std::string implementation,
      std::vector<Step::Argument> arguments,
      double flops = 0);
  // A kernel counts as primitives of this kind, or else of the operator's.
  void add_kernel(
      const Node& node,
      std::string implementation,
      c10::ArrayRef<Ref> touched,
      std::function<void(const Frame&)> kernel,
      double flops = 0,
      std::optional<zendnn_primitive_kind_t> kind = std::nullopt);
  void add_pointwise(
      const Node& node,
      zendnn_primitive_kind_t kind,
      std::string implementation,
      Pointwise chain);
  // What torch's own operators compute.
  void add_in_torch(
      const Node& node,
      c10::ArrayRef<Ref> touched,
      std::function<void(const Frame&)> run);
  void copy(int64_t value, const Place& from, const Place& to);
  // Between plain places, of any number of elements.
  void copy_as(
      const Dims& sizes,
      int64_t item_bytes,
      const Place& from,
      const Place& to) {
    copy_for(
        {.op = Op::contiguous, .label = "reorder"},
        sizes,
        item_bytes,
        from,
        to);
  }
  // Makes the result of a cat or stack out of its parts; those that were made
  // in their place already cost nothing.
  void concatenate(const Node& node);

  // ---- Context ------------------------------------------------------------
  Layout layout() const {
    return layout_;
  }
  // Writes a weight's own elements, as they lie, or the first bytes of them.
  Fill plain_weights(
      int64_t value,
      int64_t most = std::numeric_limits<int64_t>::max()) const;
  // Pins them where they lie; nothing for those that are joined.
  Lying lying_weights(int64_t value) const;
  // The candidate that serves the node; see choose() in Tuner.h. The executable
  // lists those that are wrong.
  Choice choose(
      const Node& node,
      const std::string& key,
      const std::vector<Candidate>& candidates,
      const Judge& judge,
      const std::string& about = {},
      const std::string& state = {});
  // The implementation that an executable of the plan has chosen for the same
  // problem; null where none has.
  std::shared_ptr<const Implementation> chosen(const std::string& problem);
  void set_chosen(
      const std::string& problem,
      const std::shared_ptr<const Implementation>& implementation);
  // What the implementation reads as its weights, packed once for all plans.
  Ref packed(int64_t value, const Implementation& implementation);
  // What it takes to have them.
  Supply supply(int64_t value, const Implementation& implementation) const;
  // The forms that a weight is packed in; empty where there are none.
  std::string forms(int64_t value) const;
  // Memory that `fill` fills from constants, once for each key of a plan, after
  // all steps are there; perhaps another builder's fill does it.
  Ref prepared(const std::string& key, int64_t bytes, Fill fill);

 private:
  // The slice of a concatenation that a value is.
  struct Slice {
    int64_t whole; // value
    int64_t dim, offset;
    bool stacked;         // the whole has a dimension more
    bool aligned = false; // all parts are whole blocks of channels
  };

  void place_inputs();
  void place_constants();
  Place place_whole(const Slice& slice);
  void place_in_outer(const Slice& slice);
  std::vector<Slice> slices_of(const Node& node) const;
  Place part_of(Place whole, int64_t value, const Slice& slice) const;
  bool is_same(int64_t value, const Place& a, const Place& b) const;
  // The tensors that a node reads, as the model has them.
  std::vector<TensorSpec> operands_of(const Node& node) const;
  // Of its operands and results.
  double bytes_of(const Node& node) const;
  const Weight& weight(int64_t value) const;
  // The name of the packed weights; empty if they are used as they lie.
  std::string form(int64_t value, const Implementation& implementation) const;
  // Writes a constant's elements in row-major order.
  Fill copy_of(int64_t constant) const;
  // What writes them.
  Fill packing(int64_t value, const Implementation& implementation) const;
  Ref piece_buffer(std::shared_ptr<Piece> piece);
  // Nothing goes behind the place that a constant came in.
  const Place& own_place(int64_t constant) const {
    return *places_[constant].back();
  }
  // The first place of the value that has this property, or null.
  template <typename Has>
  const Place* find_place(int64_t value, const Has& has) const {
    const auto& places = places_[value];
    const auto found = std::find_if(
        places.begin(), places.end(), [&](const auto& it) { return has(*it); });
    return found == places.end() ? nullptr : found->get();
  }
  const Place* find_plain_place(int64_t value) const {
    return find_place(value, [](const Place& it) { return !it.blocked; });
  }
  // The place, with memory for the value: in a result that lies like this, else
  // in the arena.
  Place with_memory(int64_t value, Place place);
  void build_nodes();
  void build_node(const Node& node);
  void add_step(Step step) {
    now_.part.steps.push_back(std::make_shared<const Step>(std::move(step)));
  }
  void copy_for(
      const Node& node,
      const Dims& sizes,
      int64_t item_bytes,
      const Place& from,
      const Place& to);
  // Adds what an earlier build has added.
  void repeat(const NodeBuild& build);
  // Ends the build of the current node.
  std::shared_ptr<const NodeBuild> finish() {
    return std::make_shared<const NodeBuild>(std::exchange(now_, {}));
  }
  // Of a value that has the place as its best one, or as another.
  const Place& set_place(int64_t value, Place place, bool is_best);
  void add_place(const NodeBuild::At& at);
  void touch(Ref ref) {
    buffers_.touch(ref, step());
    now_.touched.emplace_back(ref, step());
  }
  bool is_at_border(const Place& from, const Place& to) const;
  bool place_side_by_side(const Node& node);
  void find_slices();
  // How many steps there are so far.
  int64_t step() const {
    return std::ssize(program_.steps) + std::ssize(now_.part.steps);
  }
  Ref add_buffer(Buffer buffer) {
    const auto index = buffers_.add(std::move(buffer), step());
    now_.part.buffers.push_back(buffers_[index]);
    return {index, 0};
  }
  Ref arena(int64_t bytes) {
    return add_buffer({.kind = BufferKind::arena, .bytes = bytes});
  }
  Ref constant_buffer(void* data) {
    return add_buffer(
        {.kind = BufferKind::constant, .data = static_cast<char*>(data)});
  }
  void finish_results();
  // Has the executable pin the constants that its steps read as they lie.
  void pin_constants();

  const Tensor& constant_at(int64_t index) const {
    return values_.store()->tensors()[index];
  }

  Values values_;
  Packed& packed_;
  Shared<const Implementation>& chosen_;
  Layout layout_;
  double& tuning_seconds_;
  bool tunes_;
  Increment increment_;
  std::shared_ptr<const NodeBuild> built_constants_;
  std::vector<std::shared_ptr<const NodeBuild>> built_; // by each node
  NodeBuild now_; // by the current one, so far
  // Of each value, the best first.
  std::vector<c10::SmallVector<std::shared_ptr<const Place>, 2>> places_;
  Buffers buffers_;
  Program program_;
  mutable std::map<int64_t, Weight> weights_;
  Forms::Claim claim_;
  std::map<int64_t, int64_t> results_; // value to its first index among outputs
  std::map<int64_t, Slice> slices_;
  int64_t node_ = 0;
};

} // namespace at::native::zendnn::plan
