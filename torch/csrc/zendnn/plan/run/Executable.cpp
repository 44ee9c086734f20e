#include <torch/csrc/zendnn/plan/run/Executable.h>

#include <ATen/EmptyTensor.h>
#include <ATen/native/zendnn/Events.h>
#include <ATen/native/zendnn/Route.h>
#include <ATen/record_function.h>
#include <adeep/abstract_types.hpp>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <optional>
#include <utility>

namespace at::native::zendnn::plan {
namespace {

// Idle instances that an executable keeps; each has memory objects of its own,
// and an arena only while it runs.
constexpr size_t kIdleInstances = 16;

Event event_of(const Step& step, size_t index) {
  const Overhead own;
  Event event{
      .operation = step.label,
      .route = Route::plan,
      .implementation = step.implementation,
      .flops = step.flops,
      .bytes = step.bytes,
      .step = static_cast<int64_t>(index)};
  if (!step.reason.empty()) {
    event.route = Route::torch;
    event.reason = step.reason;
  }
  for (const auto& operand : step.operands) {
    event.operands.push_back(
        {{operand.sizes.begin(), operand.sizes.end()},
         {operand.strides.begin(), operand.strides.end()},
         operand.dtype});
  }
  return event;
}

// What the profiler reads sizes and dtypes from; without elements.
std::vector<c10::IValue> stand_ins(const std::vector<TensorSpec>& operands) {
  std::vector<c10::IValue> results;
  for (const auto& operand : operands) {
    results.emplace_back(Tensor(at::detail::empty_strided_meta(
        operand.sizes, operand.strides, operand.dtype)));
  }
  return results;
}

} // namespace

void Program::append(const Program& part) {
  const auto add = [](auto& all, const auto& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  add(steps, part.steps);
  add(pieces, part.pieces);
  add(forms, part.forms);
  add(chosen, part.chosen);
  add(wrong, part.wrong);
  border_copies += part.border_copies;
}

class ArgumentPool {
 public:
  struct Arguments {
    std::vector<memory> memories;
    std::vector<zendnn_exec_arg_t> list;
  };

  std::unique_ptr<Arguments> take(const Step& step) {
    {
      std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        auto arguments = std::move(idle_.back());
        idle_.pop_back();
        return arguments;
      }
    }
    auto arguments = std::make_unique<Arguments>();
    for (const auto& [index, desc, ref] : step.arguments) {
      const auto& engine = adeep::engine::cpu_engine();
      arguments->memories.emplace_back(desc, engine, nullptr);
      arguments->list.push_back({index, arguments->memories.back().get()});
    }
    return arguments;
  }

  void give(std::unique_ptr<Arguments> arguments) {
    std::lock_guard lock(mutex_);
    idle_.push_back(std::move(arguments));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Arguments>> idle_;
};

Step primitive_step(
    ::zendnn::primitive primitive,
    std::vector<Step::Argument> arguments) {
  return {
      .primitive = std::move(primitive),
      .arguments = std::move(arguments),
      .pool = std::make_shared<ArgumentPool>()};
}

class Executable::Instance {
 public:
  explicit Instance(const Program& program)
      : program_(program),
        frame_{std::vector<char*>(program.buffers.size())},
        arguments_(program.steps.size()) {
    for (size_t i = 0; i < program.buffers.size(); ++i) {
      const auto& buffer = program.buffers[i];
      frame_.bases[i] = buffer.data;
      if (buffer.kind != BufferKind::constant) {
        moving_.push_back(i);
      }
    }
    for (size_t i = 0; i < program.steps.size(); ++i) {
      if (const auto& step = *program.steps[i]; step.pool) {
        arguments_[i] = {step.pool, step.pool->take(step)};
      }
    }
  }

  // The executable may be gone.
  ~Instance() {
    for (auto& [pool, arguments] : arguments_) {
      if (pool) {
        pool->give(std::move(arguments));
      }
    }
  }

  // Allocates results and the arena.
  void prepare() {
    for (const auto& output : program_.outputs) {
      results_.push_back(empty(output));
    }
    arena_ = allocate(program_.arena_bytes);
  }

  Tensors run(const Tensors& inputs, const Integers& numbers) {
    frame_.numbers = &numbers;
    for (const auto i : moving_) {
      auto* const data = data_of(program_.buffers[i], inputs);
      changed_ = changed_ || frame_.bases[i] != data;
      frame_.bases[i] = data;
    }
    refresh();
    const auto ranges =
        at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
    const bool reports = listening() || (ranges && !route::is_alone(*ranges));
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      reports ? tell_step(i) : run_step(i);
    }
    arena_.reset();
    return std::exchange(results_, {});
  }

 private:
  char* data_of(const Buffer& buffer, const Tensors& inputs) const {
    switch (buffer.kind) {
      case BufferKind::arena:
        return static_cast<char*>(arena_.get()) + buffer.index;
      case BufferKind::constant:
        return buffer.data;
      case BufferKind::input:
        return static_cast<char*>(
            const_cast<void*>(inputs[buffer.index].const_data_ptr()));
      case BufferKind::output:
        return static_cast<char*>(results_[buffer.index].mutable_data_ptr());
      case BufferKind::bound:
        return frame_.bases[buffer.index] + frame_.value(buffer.offset);
    }
    return nullptr;
  }

  // Handles are cheap to set, not free.
  void refresh() {
    for (size_t i = 0; changed_ && i < arguments_.size(); ++i) {
      const auto& wanted = program_.steps[i]->arguments;
      for (size_t j = 0; j < wanted.size(); ++j) {
        auto& of_primitive = arguments_[i].second->memories[j];
        of_primitive.set_data_handle(frame_.at(wanted[j].ref));
      }
    }
    changed_ = false;
  }

  // Runs a step and tells the profiler and listeners.
  void tell_step(size_t index) {
    const auto& step = *program_.steps[index];
    at::RecordFunction range(at::RecordScope::FUNCTION);
    if (range.isActive()) {
      const auto operands = range.needsInputs() ? stand_ins(step.operands)
                                                : std::vector<c10::IValue>{};
      range.before(
          "zendnn::" + step.implementation,
          c10::ArrayRef<const c10::IValue>(operands.data(), operands.size()));
    }
    const Operation operation(event_of(step, index));
    run_step(index);
  }

  void run_step(size_t index) {
    const auto& step = *program_.steps[index];
    if (step.kernel) {
      if (step.kind) {
        count_kernel(*step.kind);
      }
      step.kernel(frame_);
      return;
    }
    const auto& arguments = arguments_[index].second->list;
    const auto status = zendnn_primitive_execute(
        step.primitive.get(),
        adeep::stream::default_stream().get(),
        static_cast<int>(arguments.size()),
        arguments.data());
    TORCH_CHECK(
        status == zendnn_success,
        "ZenDNN could not run ",
        step.implementation,
        " for ",
        step.label);
  }

  const Program& program_;
  Tensors results_;
  std::shared_ptr<void> arena_;
  Frame frame_;
  std::vector<size_t> moving_; // buffers that each run places anew
  // Of each step, and where they go afterwards; null for a kernel's.
  std::vector<std::pair<
      std::shared_ptr<ArgumentPool>,
      std::unique_ptr<ArgumentPool::Arguments>>>
      arguments_;
  bool changed_ = true;
};

Executable::Executable(Program program) : program_(std::move(program)) {
  static std::atomic<uint64_t> count{0};
  id_ = ++count;
}

Executable::~Executable() = default;

std::unique_ptr<Executable::Instance> Executable::take() const {
  std::unique_ptr<Instance> instance;
  {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      instance = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!instance) {
    instance = std::make_unique<Instance>(program_);
  }
  instance->prepare();
  return instance;
}

std::pair<uint64_t, std::unique_ptr<Executable::Instance>>&
Executable::reserved() {
  thread_local std::pair<uint64_t, std::unique_ptr<Instance>> kept;
  return kept;
}

void Executable::reserve() const {
  reserved() = {}; // frees what was not used
  reserved() = {id_, take()};
}

Tensors Executable::run(const Tensors& inputs, const Integers& numbers) const {
  auto [id, instance] = std::exchange(reserved(), {});
  if (id != id_) {
    instance = take();
  }
  auto results = instance->run(inputs, numbers);
  std::lock_guard lock(mutex_);
  if (idle_.size() < kIdleInstances) {
    idle_.push_back(std::move(instance));
  }
  return results;
}

} // namespace at::native::zendnn::plan
