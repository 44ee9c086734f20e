#include <torch/csrc/zendnn/plan/Executable.h>

#include <ATen/EmptyTensor.h>
#include <ATen/native/zendnn/Events.h>
#include <ATen/record_function.h>
#include <adeep/abstract_types.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

namespace at::native::zendnn::plan {
namespace {

// Idle instances that an executable keeps; each has memory objects of its own,
// and an arena only while it runs.
constexpr size_t kIdleInstances = 16;

constexpr std::string_view kTorch = "torch ";

// The kinds of primitives that our kernels do, by how their implementations'
// names begin; the first that fits counts. What only moves elements reorders.
struct Kind {
  std::string_view begin;
  zendnn_primitive_kind_t kind;
};
constexpr std::array<Kind, 20> kKinds{{
    {"attention", zendnn_matmul},
    {"batch_norm", zendnn_batch_normalization},
    {"binary", zendnn_binary},
    {"convert", zendnn_reorder},
    {"copy", zendnn_reorder},
    {"eltwise", zendnn_eltwise},
    {"embedding_bag", zendnn_reduction},
    {"embedding", zendnn_reorder},
    {"gather_pairs", zendnn_reorder},
    {"group_norm", zendnn_group_normalization},
    {"layer_norm", zendnn_layer_normalization},
    {"mean", zendnn_reduction},
    {"pad", zendnn_reorder},
    {"pairwise_dot", zendnn_matmul},
    {"resample", zendnn_resampling},
    {"rms_norm", zendnn_layer_normalization},
    {"roll", zendnn_reorder},
    {"softmax", zendnn_softmax},
    {"sum", zendnn_reduction},
    {"winograd", zendnn_convolution},
}};

// Undefined for those that no primitive does; nothing for torch's.
std::optional<int> kind_of(const Step& step) {
  if (!step.kernel || step.implementation.starts_with(kTorch)) {
    return std::nullopt;
  }
  const auto* const found =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const Kind& of) {
        return step.implementation.starts_with(of.begin);
      });
  return found == kKinds.end() ? zendnn_undefined_primitive : found->kind;
}

Event event_of(const Step& step, size_t index) {
  Event event{
      .operation = step.label,
      .route = Route::plan,
      .implementation = step.implementation,
      .step = static_cast<int64_t>(index)};
  if (step.implementation.starts_with(kTorch)) {
    event.route = Route::torch;
    event.reason = "the plan left it to torch: explain() says why";
  }
  for (const auto& argument : step.arguments) {
    if (argument.index == ZENDNN_ARG_SRC ||
        argument.index == ZENDNN_ARG_WEIGHTS) {
      event.shapes.push_back(argument.desc.get_dims());
    }
  }
  return event;
}

} // namespace

class Executable::Instance {
 public:
  explicit Instance(const Executable& owner)
      : owner_(owner), frame_(std::vector<char*>(owner.buffers_.size())) {
    const auto& engine = adeep::engine::cpu_engine();
    arguments_.resize(owner.steps_.size());
    for (size_t i = 0; i < owner.steps_.size(); ++i) {
      kinds_.push_back(kind_of(owner.steps_[i]));
      for (const auto& argument : owner.steps_[i].arguments) {
        memories_.emplace_back(argument.desc, engine, nullptr);
        memory_buffers_.push_back(argument.ref.buffer);
        memory_offsets_.push_back(argument.ref.offset);
        arguments_[i].push_back({argument.index, memories_.back().get()});
      }
    }
    for (size_t i = 0; i < owner.buffers_.size(); ++i) {
      if (owner.buffers_[i].kind == Buffer::Kind::constant) {
        move(i, owner.buffers_[i].data);
      }
    }
  }

  void run(
      char* arena,
      const std::vector<Tensor>& inputs,
      const std::vector<int64_t>& numbers,
      std::vector<Tensor>& outputs) {
    frame_.numbers_ = &numbers;
    for (size_t i = 0; i < owner_.buffers_.size(); ++i) {
      const auto& buffer = owner_.buffers_[i];
      switch (buffer.kind) {
        case Buffer::Kind::arena:
          move(i, arena + buffer.index);
          break;
        case Buffer::Kind::input:
          move(
              i,
              static_cast<char*>(
                  const_cast<void*>(inputs[buffer.index].const_data_ptr())));
          break;
        case Buffer::Kind::output:
          move(i, static_cast<char*>(outputs[buffer.index].mutable_data_ptr()));
          break;
        case Buffer::Kind::bound:
          move(i, frame_.bases_[buffer.index] + frame_.value(buffer.offset));
          break;
        case Buffer::Kind::constant:
          break;
      }
    }
    refresh();
    if (listening() ||
        at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION)) {
      for (size_t i = 0; i < owner_.steps_.size(); ++i) {
        tell_step(i);
      }
      return;
    }
    for (size_t i = 0; i < owner_.steps_.size(); ++i) {
      run_step(i);
    }
  }

 private:
  void move(size_t buffer, char* data) {
    if (frame_.bases_[buffer] != data) {
      frame_.bases_[buffer] = data;
      changed_ = true;
    }
  }

  // Setting a handle is cheap beside making a memory object, not free.
  void refresh() {
    if (!changed_) {
      return;
    }
    for (size_t i = 0; i < memories_.size(); ++i) {
      memories_[i].set_data_handle(
          frame_.at(Ref{memory_buffers_[i], memory_offsets_[i]}));
    }
    changed_ = false;
  }

  // Runs a step under the eyes of the profiler and of who listens.
  void tell_step(size_t index) {
    const auto& step = owner_.steps_[index];
    RECORD_FUNCTION(
        "zendnn::" + step.implementation, c10::ArrayRef<const c10::IValue>{});
    const Operation told(event_of(step, index));
    run_step(index);
  }

  void run_step(size_t index) {
    const auto& step = owner_.steps_[index];
    if (step.kernel) {
      if (const auto kind = kinds_[index]) {
        count_kernel(*kind);
      }
      step.kernel(frame_);
      return;
    }
    const auto& arguments = arguments_[index];
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

  const Executable& owner_;
  Frame frame_;
  std::vector<memory> memories_;
  std::vector<int64_t> memory_buffers_, memory_offsets_;
  std::vector<std::vector<zendnn_exec_arg_t>> arguments_; // of each step
  std::vector<std::optional<int>> kinds_; // of primitives, likewise
  bool changed_ = true;
};

Executable::Executable(
    std::vector<Step> steps,
    std::vector<Buffer> buffers,
    std::vector<Output> outputs,
    std::vector<std::shared_ptr<void>> owned,
    int64_t arena_bytes,
    int64_t border_copies,
    std::vector<std::string> wrong)
    : steps_(std::move(steps)),
      buffers_(std::move(buffers)),
      outputs_(std::move(outputs)),
      owned_(std::move(owned)),
      arena_bytes_(arena_bytes),
      border_copies_(border_copies),
      wrong_(std::move(wrong)) {
  static std::atomic<uint64_t> made{0};
  id_ = ++made;
}

Executable::~Executable() = default;

std::unique_ptr<Executable::Instance> Executable::take() const {
  {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto instance = std::move(idle_.back());
      idle_.pop_back();
      return instance;
    }
  }
  return std::make_unique<Instance>(*this);
}

std::pair<uint64_t, Executable::Room>& Executable::reserved() {
  thread_local std::pair<uint64_t, Room> kept;
  return kept;
}

Executable::Room Executable::make_room() const {
  Room room;
  try {
    for (const auto& output : outputs_) {
      room.results.push_back(at::detail::empty_strided_cpu(
          output.sizes, output.strides, output.dtype, false));
    }
  } catch (const c10::Error&) { // the allocator's
    throw std::bad_alloc();
  }
  room.instance = take();
  room.arena = allocate(arena_bytes_);
  return room;
}

void Executable::reserve() const {
  reserved() = {}; // before there is more
  reserved() = {id_, make_room()};
}

std::vector<Tensor> Executable::run(
    const std::vector<Tensor>& inputs,
    const std::vector<int64_t>& numbers) const {
  auto [id, room] = std::exchange(reserved(), {});
  if (id != id_) {
    room = make_room();
  }
  room.instance->run(
      static_cast<char*>(room.arena.get()), inputs, numbers, room.results);
  std::lock_guard lock(mutex_);
  if (idle_.size() < kIdleInstances) {
    idle_.push_back(std::move(room.instance));
  }
  return std::move(room.results);
}

} // namespace at::native::zendnn::plan
