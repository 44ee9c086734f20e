// The values of a description at the sizes at hand: their types, as each
// operator's row infers them, and the numbers among them.
//
// One build owns them, in one thread, without a lock.
#pragma once

#include <torch/csrc/zendnn/plan/cache/ConstantStore.h>
#include <torch/csrc/zendnn/plan/describe/Description.h>
#include <torch/csrc/zendnn/plan/infer/Layouts.h>
#include <torch/csrc/zendnn/plan/infer/Numbers.h>
#include <torch/csrc/zendnn/plan/run/TorchFallback.h>

#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace at::native::zendnn::plan {

// What a plan is called with.
struct Call {
  std::vector<TensorSpec> inputs{};
  Integers numbers{};
  route::Moment route{};

  bool operator==(const Call&) const = default;
};

struct Value : TensorSpec {
  bool is_number = false;
  Number number{};
  int64_t last_use = -1; // the last node that reads it
  int64_t constant = -1;
  Integers joined{}; // constants that it is made of
};

// All that is inferred for a call.
struct Inferred {
  std::vector<Value> values;
  // The description's own, which it must outlive, or parts of those.
  std::vector<std::shared_ptr<const Node>> nodes;
  std::vector<int64_t> written; // of each node, the one that it stands for
};

class Values {
 public:
  // Infers all types; `conditions` become those of the numbers. What was
  // inferred for another call of the region, if given, loses its values: those
  // whose operands have not changed stay. Throws Refused where a plan does not
  // take the call, or RefusedNode where it does not take one node.
  Values(
      const Description& description,
      std::shared_ptr<ConstantStore> constants,
      const Call& call,
      Conditions& conditions,
      Inferred* before = nullptr);

  const Description& description() const {
    return description_;
  }
  // How many values there are.
  size_t count() const {
    return values_.size();
  }
  // In order; some stand for a part of what the description has.
  const std::vector<std::shared_ptr<const Node>>& nodes() const {
    return nodes_;
  }
  // The node of the description that one stands for.
  int64_t written(int64_t node) const {
    return written_[node];
  }
  // Of the region's own values, those whose type is as it was before.
  const std::vector<bool>& unchanged() const {
    return unchanged_;
  }
  // What the values of another call are inferred from.
  Inferred inferred() && {
    return {std::move(values_), std::move(nodes_), std::move(written_)};
  }

  // ---- Numbers ------------------------------------------------------------
  bool is_number(int64_t value) const {
    return values_[value].is_number;
  }
  // Its value now, which becomes a condition.
  int64_t number(const Operand& operand) const;
  // Its formula, which each call evaluates.
  Number unbound(const Operand& operand) const;
  // Whether the number is within these bounds now; if so, that becomes a
  // condition.
  bool keeps_within(const Number& number, int64_t least, int64_t most) const;
  void set_number(int64_t value, Number number);

  // ---- Tensors ------------------------------------------------------------
  const Dims& sizes(int64_t value) const {
    return values_[value].sizes;
  }
  c10::ScalarType dtype(int64_t value) const {
    return values_[value].dtype;
  }
  // Those that torch's own operators would give.
  const Dims& strides(int64_t value) const {
    return values_[value].strides;
  }
  const TensorSpec& spec(int64_t value) const {
    return values_[value];
  }
  memory::desc row_major(int64_t value) const;
  bool is_constant(int64_t value) const {
    return constant_index(value) >= 0;
  }
  // Among the constants; -1 where the value is none.
  int64_t constant_index(int64_t value) const {
    return values_[value].constant;
  }
  // Their elements are there while pinned.
  const std::shared_ptr<ConstantStore>& store() const {
    return store_;
  }
  // Null unless the value is a constant, whose elements are there until these
  // values are gone. What reads them later needs a pin of its own.
  const Tensor* constant(int64_t value) const;
  ConstantStore::Pin pin(int64_t constant) const {
    return store_->pin(constant_index(constant));
  }
  // A constant, or constants joined along the first dimension, which then have
  // no place but as Builder::packed() makes it.
  bool is_weight(int64_t value) const {
    return is_constant(value) || is_joined(value);
  }
  bool is_joined(int64_t value) const {
    return !values_[value].joined.empty();
  }
  // The constants that a weight is made of.
  Integers parts_of(int64_t weight) const {
    return is_joined(weight) ? values_[weight].joined
                             : Integers{constant_index(weight)};
  }
  // A new value, for the parts of a node that is taken apart.
  int64_t add_value();
  // Without strides, row-major.
  void set_type(
      int64_t value,
      Dims sizes,
      c10::ScalarType dtype,
      std::optional<Dims> strides = std::nullopt);

  // ---- Uses ---------------------------------------------------------------
  // The last node that reads it; that of a result comes after all.
  int64_t last_use(int64_t value) const {
    return values_[value].last_use;
  }
  bool is_only_read_by(int64_t value, Op op) const;
  // The strides that a result has for the caller.
  Dims result_strides(int64_t value) const;

 private:
  void infer_inputs(const std::vector<TensorSpec>& inputs, bool again);
  void infer_constants();
  void find_joined();
  void infer_nodes(const Inferred* before);
  void infer_node(const Node& node);
  // Whether torch's result is row-major, whatever its operands' strides are.
  bool is_always_row_major(const Node& node) const;
  void follow_strides(const Node& node);
  void find_uses();
  // As torch would see it, whatever it is inside of the plan.
  bool is_channels_last(int64_t value) const;

  const Description& description_;
  std::shared_ptr<ConstantStore> store_;
  const Tensors& constants_;
  std::vector<std::shared_ptr<const Node>> nodes_;
  std::vector<int64_t> written_;
  std::vector<Value> values_;
  std::vector<bool> unchanged_;
  mutable std::map<int64_t, ConstantStore::Pin> pins_; // of those handed out
  Conditions& conditions_;
  Integers numbers_; // that the region is called with now
};

// Infers a node's types; returns whether one step can do all of it. Throws
// Refused unless operands of post-ops have the result's type.
bool infer_whole(Values& values, const Node& node);
// Infers the types of the nodes that replace one, and returns them in order:
// where an operand of a post-op, or a residual, makes the result larger than
// the operator's own, binary nodes do the rest.
std::vector<Node> infer_parts(Values& values, const Node& node);

} // namespace at::native::zendnn::plan
