// What a plan has built for one set of input shapes: steps that run in order on
// buffers whose places are known.
#pragma once

#include <torch/csrc/zendnn/plan/Arena.h>
#include <torch/csrc/zendnn/plan/Numbers.h>

#include <ATen/core/Tensor.h>
#include <zendnn.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace at::native::zendnn::plan {

using ::zendnn::memory;
using Dims = memory::dims;

// A place in one of an executable's buffers.
struct Ref {
  int64_t buffer = -1;
  int64_t offset = 0; // in bytes

  explicit operator bool() const {
    return buffer >= 0;
  }
};

// Where the buffers are during one run, and the numbers that it was given.
class Frame {
 public:
  explicit Frame(std::vector<char*> bases) : bases_(std::move(bases)) {}

  int64_t value(const Number& number) const {
    return number.at(*numbers_).value();
  }

  template <typename T = void>
  T* at(Ref ref) const {
    return ref ? reinterpret_cast<T*>(bases_[ref.buffer] + ref.offset)
               : nullptr;
  }

  std::vector<char*> bases_;
  const std::vector<int64_t>* numbers_ = nullptr;
};

struct Step {
  // One argument of a primitive.
  struct Argument {
    int index;
    memory::desc desc;
    Ref ref;
  };

  std::string label; // the model's operators that it does
  std::string implementation;
  double flops = 0;
  // Either a primitive with its arguments, or a kernel.
  ::zendnn::primitive primitive;
  std::vector<Argument> arguments;
  std::function<void(const Frame&)> kernel;
};

class Executable {
 public:
  struct Buffer {
    enum class Kind : uint8_t { arena, constant, input, output, bound };
    Kind kind;
    // Of the input or output; the offset in the arena; the buffer that a bound
    // one lies in.
    int64_t index;
    char* data;    // of a constant
    Number offset; // of a bound one, in bytes
  };
  struct Output {
    Dims sizes, strides;
    c10::ScalarType dtype;
  };

  Executable(
      std::vector<Step> steps,
      std::vector<Buffer> buffers,
      std::vector<Output> outputs,
      std::vector<std::shared_ptr<void>> owned,
      int64_t arena_bytes,
      int64_t border_copies,
      std::vector<std::string> wrong);
  ~Executable();

  // Takes the memory of this thread's next run, which then cannot fail for want
  // of it. Throws bad_alloc where there is none.
  void reserve() const;
  // Inputs have the sizes, strides and dtypes that this was built for, and
  // numbers meet its conditions. Safe to call from several threads at once.
  // Throws bad_alloc unless reserved.
  std::vector<Tensor> run(
      const std::vector<Tensor>& inputs,
      const std::vector<int64_t>& numbers) const;

  const std::vector<Step>& steps() const {
    return steps_;
  }
  int64_t arena_bytes() const {
    return arena_bytes_;
  }
  // Steps that only bring an input or a result into another layout.
  int64_t border_copies() const {
    return border_copies_;
  }

  // Implementations that were tried and computed wrong results, for what.
  const std::vector<std::string>& wrong() const {
    return wrong_;
  }

 private:
  // Memory objects of one run at a time.
  class Instance;
  // All that one run writes to.
  struct Room {
    std::vector<Tensor> results;
    std::unique_ptr<Instance> instance;
    std::shared_ptr<void> arena;
  };

  std::unique_ptr<Instance> take() const;
  Room make_room() const;
  // What reserve() took in this thread, and the executable that it is for.
  static std::pair<uint64_t, Room>& reserved();

  std::vector<Step> steps_;
  std::vector<Buffer> buffers_;
  std::vector<Output> outputs_;
  std::vector<std::shared_ptr<void>> owned_; // what constants point into
  int64_t arena_bytes_, border_copies_;
  std::vector<std::string> wrong_;
  uint64_t id_; // unlike its address, never another's later
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Instance>> idle_;
};

} // namespace at::native::zendnn::plan
