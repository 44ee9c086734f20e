// What a plan has built for one set of input shapes: steps that run in order on
// buffers whose places are known.
//
// An executable owns its program, which never changes, and idle instances,
// which its lock guards. A run owns the instance that it took, and so shares
// nothing that it writes to.
#pragma once

#include <torch/csrc/zendnn/plan/build/Arena.h>
#include <torch/csrc/zendnn/plan/cache/ConstantStore.h>
#include <torch/csrc/zendnn/plan/infer/Numbers.h>

#include <zendnn.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace at::native::zendnn::plan {

using ::zendnn::memory;

struct Implementation;
struct Pointwise;

// A place in one of an executable's buffers.
struct Ref {
  int64_t buffer = -1;
  int64_t offset = 0; // in bytes

  explicit operator bool() const {
    return buffer >= 0;
  }
};

// Where the buffers are during one run, and the numbers that it was given.
struct Frame {
  int64_t value(const Number& number) const {
    return number.at(*numbers).value();
  }

  template <typename T = void>
  T* at(Ref ref) const {
    return ref ? reinterpret_cast<T*>(bases[ref.buffer] + ref.offset) : nullptr;
  }

  std::vector<char*> bases;
  const Integers* numbers = nullptr;
};

// A step's arguments as primitives take them. Each run needs some of its own;
// what an executable leaves serves others that have the step.
class ArgumentPool;

struct Step {
  // One argument of a primitive.
  struct Argument {
    int index;
    memory::desc desc;
    Ref ref;
  };

  std::string label{}; // the model's operators that it does
  int64_t node = -1;   // of the region, that it is a part of
  std::string implementation{};
  std::string reason{}; // why torch computes it; empty for steps on ZenDNN
  double flops = 0;
  double bytes = 0;                   // of operands and results
  std::vector<TensorSpec> operands{}; // for profilers and listeners
  // Either a primitive with its arguments, or a kernel.
  ::zendnn::primitive primitive{};
  std::vector<Argument> arguments{};
  std::shared_ptr<ArgumentPool> pool{};
  std::function<void(const Frame&)> kernel{};
  // What the kernel computes, where each element comes by itself.
  std::shared_ptr<const Pointwise> pointwise{};
  // Of a primitive that does what the kernel does; undefined where none does,
  // nothing for steps of torch.
  std::optional<int> kind{};
};

enum class BufferKind : uint8_t { arena, constant, input, output, bound };

struct Buffer {
  BufferKind kind;
  // Of the input or output; the offset in the arena; the buffer that a bound
  // one lies in.
  int64_t index = 0;
  char* data = nullptr;    // of a constant
  bool is_touched = false; // by a step
  Number offset{};         // of a bound one, in bytes
  // Of one in the arena: its size, the steps that need it, from the first to
  // the last, and the values in it.
  int64_t bytes = 0, first = 0, last = 0;
  c10::SmallVector<int64_t, 2> occupants{};
};

// What a builder makes for an executable to run.
struct Program {
  // Executables of a plan share those that do not depend on what differs.
  std::vector<std::shared_ptr<const Step>> steps{};
  std::vector<Buffer> buffers{};
  std::vector<TensorSpec> outputs{};
  std::vector<std::shared_ptr<Piece>> pieces{}; // which constants point into
  std::vector<ConstantStore::Form> forms{};     // those of weights
  std::vector<ConstantStore::Pin> pins{};       // of constants that steps read
  // Of products; other executables of the plan reuse them.
  std::vector<std::shared_ptr<const Implementation>> chosen{};
  int64_t arena_bytes = 0;
  // Steps that only bring an input or a result into another layout.
  int64_t border_copies = 0;
  int64_t taken_over = 0; // nodes, from the build before
  // Implementations that were tried and computed wrong results, for what.
  std::vector<std::string> wrong{};

  // Adds what a part has apart from its buffers and outputs.
  void append(const Program& part);
};

// A step that runs a primitive.
Step primitive_step(
    ::zendnn::primitive primitive,
    std::vector<Step::Argument> arguments);

class Executable {
 public:
  explicit Executable(Program program);
  ~Executable();

  // Allocates the memory of this thread's next run, which then cannot fail for
  // want of it. Throws bad_alloc.
  void reserve() const;
  // Inputs have the sizes, strides and dtypes that this was built for, and
  // numbers meet its conditions. Safe to call from several threads at once.
  // Throws bad_alloc unless reserved.
  Tensors run(const Tensors& inputs, const Integers& numbers) const;

  const Program& program() const {
    return program_;
  }

 private:
  // All that one run writes to. An idle one keeps its memory objects.
  class Instance;

  std::unique_ptr<Instance> take() const;
  // What reserve() took in this thread, and the executable that it is for.
  static std::pair<uint64_t, std::unique_ptr<Instance>>& reserved();

  Program program_;
  uint64_t id_; // unlike its address, never another's later
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Instance>> idle_;
};

} // namespace at::native::zendnn::plan
