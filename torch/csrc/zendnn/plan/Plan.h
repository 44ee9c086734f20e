// torch.classes.zendnn.Plan: a region's description and constants, and what has
// been built from them for the input shapes seen so far.
#pragma once

#include <torch/csrc/zendnn/plan/cache/PlanCache.h>
#include <torch/custom_class.h>

#include <set>

namespace at::native::zendnn::plan {

class Plan : public torch::CustomClassHolder {
 public:
  // Throws c10::Error when the description cannot be read.
  Plan(
      const std::string& description,
      Tensors constants,
      const std::string& name);
  Plan(const Description& region, Tensors constants, std::string name);

  // Whether run() takes these inputs as things stand: ZenDNN is switched on,
  // nothing needs a gradient, every operator takes these sizes and dtypes,
  // autocast would not convert them, what is written shares no memory with
  // other inputs, and there is memory to prepare them. Builds what is missing.
  bool takes(const Tensors& tensors, const Integers& numbers);
  Tensors run(const Tensors& tensors, const Integers& numbers);

  // Computes the same in torch's own operators, which may record gradients.
  Tensors interpret(const Tensors& tensors, const Integers& numbers) const;

  // Whether a run on these inputs is to be compared with the original
  // operators: once for each set of shapes, with ZENDNN_VERIFY=1.
  bool is_due(const Tensors& tensors, const Integers& numbers);
  // Returns what the original operators gave for these inputs. Where the plan
  // gave something else, a warning says so, and from now on it refuses the
  // shapes.
  Tensors verified(
      const Tensors& tensors,
      const Integers& numbers,
      const Tensors& results,
      const Tensors& original);

  // The text that it was made from.
  const std::string& description() const {
    return description_;
  }
  const Description& region() const {
    return region_;
  }
  // Which the caller may keep.
  Tensors constants() const {
    return constants_->whole();
  }
  // The same, for operators that run in the plan's place.
  Tensors operands() const {
    return constants_->restored();
  }
  const std::string& name() const {
    return name_;
  }
  // What has been built: a dictionary, as Python reads it.
  c10::IValue explain() const;
  // Forgets what has been built.
  void clear();

 private:
  Plan(
      std::string description,
      Description region,
      Tensors constants,
      std::string name);
  // Whether these are as many as the region reads, and plain memory.
  bool is_count(const Tensors& tensors, const Integers& numbers) const;
  bool fits(const Tensors& tensors, const Integers& numbers) const;
  void check_fits(bool fits, const Tensors& tensors, const Integers& numbers)
      const;
  // What profilers see of a run: the tensors and, where ZenDNN's own listen,
  // the numbers, the constants and the description.
  std::vector<c10::IValue> arguments(
      const Tensors& tensors,
      const Integers& numbers) const;
  // Forgets what no executable holds.
  void trim();
  // Times implementations for the first sizes, and for others once they recur.
  Built build(const Call& call, Occasion occasion);
  // The same, before anybody counts the weights that are packed for it.
  Built build_tried(const Call& call, Occasion occasion);
  // Whether there is room for convolutions' weights in another layout, too.
  bool may_change_layout() const;
  // The one of several layouts that the build before chose, if there was one.
  std::vector<Layout> chosen_of(const std::vector<Layout>& layouts) const;
  // The latest build, if one for this call would choose like it; the plan has
  // it no more then.
  std::unique_ptr<Predecessor> take_predecessor(Layout layout, bool tunes);
  // In one layout of images. Throws Refused where a plan gains nothing.
  Built build(
      const Call& call,
      Layout layout,
      Conditions& conditions,
      double& seconds);
  // What the choice of a layout depends on.
  std::string layout_key(const Call& call, const Conditions& conditions) const;
  Choice fastest(
      const std::vector<Built>& built,
      const Call& call,
      const Conditions& conditions,
      double& seconds) const;

  std::string description_;
  Description region_;
  std::shared_ptr<ConstantStore> constants_;
  std::string name_;
  std::set<size_t> states_;           // of the tensors, those that are written
  std::set<c10::ScalarType> weights_; // of convolutions and linear layers
  Packed packed_;
  Shared<const Implementation> chosen_;
  mutable std::mutex mutex_;            // of the next three
  std::unique_ptr<Predecessor> latest_; // of what has been built
  std::optional<Layout> layout_;        // of the last build for images
  int builds_ = 0;                      // of calls that were new
  PlanCache cache_;
};

} // namespace at::native::zendnn::plan
