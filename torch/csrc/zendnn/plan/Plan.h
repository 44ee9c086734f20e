// torch.classes.zendnn.Plan: a region's description and constants, and what has
// been built from them for the input shapes seen so far.
#pragma once

#include <torch/csrc/zendnn/plan/Builder.h>
#include <torch/custom_class.h>

#include <future>
#include <list>

namespace at::native::zendnn::plan {

class Plan : public torch::CustomClassHolder {
 public:
  // Throws c10::Error when the description cannot be read.
  Plan(
      std::string description,
      std::vector<Tensor> constants,
      std::string name);

  // Whether run() takes these inputs as things stand: ZenDNN is switched on,
  // nothing needs a gradient, and every operator takes these sizes and dtypes.
  // Builds what is missing.
  bool takes(
      const std::vector<Tensor>& tensors,
      const std::vector<int64_t>& numbers);
  std::vector<Tensor> run(
      const std::vector<Tensor>& tensors,
      const std::vector<int64_t>& numbers);

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
    std::shared_ptr<Executable> executable; // or
    std::string refused;                    // why not
  };
  struct Entry {
    std::vector<InputSignature> inputs;
    std::vector<int64_t> numbers;
    int threads;
    std::shared_future<Built> built;

    bool matches(
        const std::vector<Tensor>& tensors,
        const std::vector<int64_t>& numbers,
        int threads) const;
  };

  // Whether these are as many as the region reads, and plain memory.
  bool fits(
      const std::vector<Tensor>& tensors,
      const std::vector<int64_t>& numbers) const;
  Built find(
      const std::vector<Tensor>& tensors,
      const std::vector<int64_t>& numbers);
  Built build(
      const std::vector<InputSignature>& inputs,
      const std::vector<int64_t>& numbers);

  std::string description_;
  std::vector<Tensor> constants_;
  std::string name_;
  Description region_;
  Packed packed_;
  mutable std::mutex mutex_;
  std::list<Entry> recent_; // the most recently used first
};

} // namespace at::native::zendnn::plan
