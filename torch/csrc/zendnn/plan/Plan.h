// torch.classes.zendnn.Plan: a region's description and constants, and what has
// been built from them for the input shapes seen so far.
#pragma once

#include <torch/csrc/zendnn/plan/Builder.h>
#include <torch/custom_class.h>

#include <atomic>
#include <future>
#include <list>
#include <set>

namespace at::native::zendnn::plan {

class Plan : public torch::CustomClassHolder {
 public:
  // Throws c10::Error when the description cannot be read.
  Plan(
      std::string description,
      std::vector<Tensor> constants,
      std::string name);

  // Whether run() takes these inputs as things stand: ZenDNN is switched on,
  // nothing needs a gradient, every operator takes these sizes and dtypes,
  // autocast would not convert them, what is written shares no memory with
  // other inputs, and there is memory to prepare them. Builds what is missing.
  bool takes(
      const std::vector<Tensor>& tensors,
      const std::vector<int64_t>& numbers);
  std::vector<Tensor> run(
      const std::vector<Tensor>& tensors,
      const std::vector<int64_t>& numbers);

  // Whether a run on these inputs is to be compared with the original
  // operators: once for each set of shapes, with ZENDNN_VERIFY=1.
  bool is_due(
      const std::vector<Tensor>& tensors,
      const std::vector<int64_t>& numbers);
  // Returns what the original operators gave for these inputs. Where the plan
  // gave something else, a warning says so, and from now on it refuses the
  // shapes.
  std::vector<Tensor> verified(
      const std::vector<Tensor>& tensors,
      const std::vector<int64_t>& numbers,
      const std::vector<Tensor>& given,
      const std::vector<Tensor>& original);

  const std::string& description() const {
    return description_;
  }
  const std::vector<Tensor>& constants() const {
    return constants_;
  }
  const std::string& name() const {
    return name_;
  }
  // What has been built, as JSON.
  std::string explain() const;
  // Forgets what has been built.
  void clear();

 private:
  struct Built {
    std::shared_ptr<Executable> executable = nullptr; // or
    std::string refused{};                            // why not
    std::string layout{}; // of images; empty when there are none
    std::set<c10::ScalarType> products{}; // what autocast would convert
    std::vector<Left> left{};             // what torch computes
    Conditions conditions{};              // of the numbers
    std::shared_ptr<std::atomic<bool>> due =
        std::make_shared<std::atomic<bool>>(verifies());
  };
  struct Entry {
    std::vector<InputSignature> inputs;
    std::vector<int64_t> numbers;
    int threads;
    uint64_t id;
    std::shared_future<std::shared_ptr<const Built>> built;
    enum class Kind : uint8_t { in_work, runs, refused };
    Kind kind = Kind::in_work;
    std::optional<Conditions> conditions{}; // once it is built

    bool matches(
        const std::vector<Tensor>& tensors,
        const std::vector<int64_t>& numbers,
        int threads) const;
  };

  // Whether these are as many as the region reads, and plain memory.
  bool fits(
      const std::vector<Tensor>& tensors,
      const std::vector<int64_t>& numbers) const;
  std::shared_ptr<const Built> find(
      const std::vector<Tensor>& tensors,
      const std::vector<int64_t>& numbers);
  // Entries of this kind that are too many, now taken out. Refusals cost
  // nothing and take no executable's room.
  std::list<Entry> beyond_capacity(Entry::Kind kind);
  Built build(
      const std::vector<InputSignature>& inputs,
      const std::vector<int64_t>& numbers);
  // In one layout of images. Throws Refused when nothing is gained by that.
  Built build(
      const std::vector<InputSignature>& inputs,
      const std::vector<int64_t>& numbers,
      Layout layout,
      Conditions& conditions,
      double& seconds);
  size_t fastest(
      const std::vector<Built>& built,
      const std::vector<InputSignature>& inputs,
      const std::vector<int64_t>& numbers,
      const Conditions& conditions,
      double& seconds) const;

  std::string description_;
  std::vector<Tensor> constants_;
  std::string name_;
  Description region_;
  std::set<size_t> states_;           // of the tensors, those that are written
  std::set<c10::ScalarType> weights_; // of convolutions and linear layers
  Packed packed_;
  mutable std::mutex mutex_;
  std::list<Entry> recent_; // the most recently used first
  uint64_t entries_ = 0;    // that there have been
};

} // namespace at::native::zendnn::plan
