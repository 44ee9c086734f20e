// What convolutions and matrix products share: the choice of an implementation,
// of a way to attach post-ops, and of a place for the result.
#pragma once

#include <torch/csrc/zendnn/plan/build/PostOps.h>

#include <adeep/abstract_types.hpp>

#include <algorithm>
#include <limits>

namespace at::native::zendnn::plan {

// The memory of an argument; null for one that is not given.
using Addresses = std::function<void*(int argument)>;

// A primitive of ZenDNN, or a kernel of ours that does the same.
struct Implementation {
  memory::desc source, weights, bias, result, scratchpad{};
  memory::desc plain{}; // the weights as they lie
  std::string implementation{}, name;
  bool is_slow = false; // not worth timing where there are others
  Supply supply{};      // of its weights, when it was found
  std::function<::zendnn::primitive()> make{}; // compiles it, if need be

  // Of a kernel; it packs its weights itself.
  std::function<void(const Addresses&)> run{};
  Fill pack{};
  double loss = 1; // its rounding errors, relative to a primitive's

  ::zendnn::primitive primitive{}; // of the chosen one, if not a kernel
};

// Returns whether to go on.
using Visit = std::function<bool(Implementation)>;

// Visits ZenDNN's implementations, best first. Run is the class of the
// primitive; `problem` describes it: operands and attributes.
template <typename Run, typename... Problem>
void visit_primitives(
    const std::string& kind,
    const memory::desc& plain,
    const Visit& visit,
    const Problem&... problem) {
  using Description = typename Run::primitive_desc;
  Description desc(
      adeep::engine::cpu_engine(), problem..., /*allow_empty=*/true);
  for (bool more = static_cast<bool>(desc); more;) {
    const std::string implementation = desc.impl_info_str();
    // next_impl() changes what copies of a descriptor refer to; made from its
    // handle, a descriptor is a clone.
    more =
        visit(
            {.source = desc.src_desc(),
             .weights = desc.weights_desc(),
             .bias = desc.bias_desc(),
             .result = desc.dst_desc(),
             .scratchpad = desc.scratchpad_desc(),
             .plain = plain,
             .implementation = implementation,
             .name = kind + implementation,
             .is_slow = is_reference(implementation),
             .make = [kept = Description(desc.get())] { return Run(kept); }}) &&
        desc.next_impl();
  }
}

// The same tensor in whichever layout the primitive likes.
inline memory::desc any_layout(const memory::desc& of) {
  return {of.get_dims(), of.get_data_type(), memory::format_tag::any};
}

// From row to row of a matrix. A single row may have any stride.
inline int64_t row_step(const memory::desc& matrix) {
  return std::max(matrix.get_strides()[0], matrix.get_dims()[1]);
}

class Trial;

class Product {
 public:
  virtual ~Product() = default;
  // Adds the steps that compute the node.
  void build();

 protected:
  // `name` is for messages and keys.
  Product(Builder& builder, const Node& node, std::string name)
      : builder_(builder), node_(node), name_(std::move(name)) {}

  // The result's layout in a place, or in a new one; nothing if it cannot go
  // there.
  virtual std::optional<memory::desc> describe_result(
      const std::optional<Place>& place) const = 0;
  // An operand of post-ops, which may determine the result's layout.
  virtual std::optional<Seen> see(int64_t operand) = 0;
  virtual void visit(
      const ::zendnn::primitive_attr& attributes,
      const Visit& visit) const = 0;
  // The implementations to choose from, all for the same layouts; with `slow`,
  // a slow one where there is no other.
  virtual std::vector<Implementation> find(const Attached& attached, bool slow)
      const;
  // A problem with fewer rows and columns, which takes less time to choose for;
  // null where the whole is small.
  virtual std::unique_ptr<Product> part() const {
    return nullptr;
  }
  // For a part: these implementations of the whole with the part's operands, in
  // this order; none where it lacks one.
  virtual std::vector<Implementation> find_again(
      const Attached& /*attached*/,
      const std::vector<Implementation>& /*of_whole*/) const {
    return {};
  }
  // Operand 2 as a vector, where it is there.
  void set_bias();

  Builder& builder_;
  const Node& node_;
  std::string name_;
  std::string window_{};    // of a convolution, for keys
  bool bias_apart_ = false; // a step of its own adds it, before the post-ops
  size_t most_ = std::numeric_limits<size_t>::max(); // to choose from
  int64_t depth_ = 1; // products that are summed for an element of the result
  // The weights are as they lie.
  memory::desc source_, weights_, bias_, result_;
  Ref source_ref_{}, weights_ref_{}; // of operands that are used as they lie
  std::optional<Place> place_;       // for the result, where that is given

 private:
  bool lacks_room_ = false; // to pack weights for an implementation

  // The implementation that serves; null where there is none.
  std::shared_ptr<const Implementation> choose(
      const Attached& attached,
      bool slow);
  // All that the choice depends on; `about` rounds numbers of rows up to those
  // that neighbours share.
  std::string key(const Attached& attached, bool about) const;
  // Whether its weights need no memory, or may have it and get it.
  bool is_served(const Implementation& implementation, bool may_pack) const;
  // Leaves out those whose weights get no memory, and puts those that are
  // packed first. Returns what a choice between the others depends on, nothing
  // for a weight that is neither packed yet nor the plan's alone.
  std::string leave_out_unserved(std::vector<Implementation>& found);
  Choice fastest(
      const Attached& attached,
      const std::vector<Implementation>& found,
      const std::string& state);
  Trial trial(const Attached& attached) const;
  Implementation reference(const Attached& attached) const;
  void add(const Implementation& implementation, const Attached& attached);
};

// The most bytes of scratchpad that a primitive may have whose operands take so
// many. Some convolutions want room in proportion to products of sizes.
inline int64_t scratchpad_bound(int64_t operand_bytes) {
  constexpr int64_t kFree = int64_t{64} << 20, kShare = 16;
  return kFree + kShare * operand_bytes;
}

} // namespace at::native::zendnn::plan
