#include <torch/csrc/zendnn/plan/Executable.h>

#include <ATen/EmptyTensor.h>
#include <ATen/native/zendnn/Info.h>
#include <adeep/abstract_types.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <new>
#include <utility>

namespace at::native::zendnn::plan {
namespace {

// Idle instances that an executable keeps; each has memory objects of its own,
// and an arena only while it runs.
constexpr size_t kIdleInstances = 16;

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now() - start)
      .count();
}

} // namespace

class Executable::Instance {
 public:
  explicit Instance(const Executable& owner)
      : owner_(owner), frame_(std::vector<char*>(owner.buffers_.size())) {
    const auto& engine = adeep::engine::cpu_engine();
    arguments_.resize(owner.steps_.size());
    for (size_t i = 0; i < owner.steps_.size(); ++i) {
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
      std::vector<Tensor>& outputs) {
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
        case Buffer::Kind::constant:
          break;
      }
    }
    refresh();
    if (verbose() > 0) {
      for (size_t i = 0; i < owner_.steps_.size(); ++i) {
        const auto start = std::chrono::steady_clock::now();
        run_step(i);
        const auto& step = owner_.steps_[i];
        std::printf(
            "zendnn_verbose,plan,%zu,%s,%s,%g\n",
            i,
            step.implementation.c_str(),
            step.label.c_str(),
            milliseconds_since(start));
      }
      std::fflush(stdout);
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

  void run_step(size_t index) {
    const auto& step = owner_.steps_[index];
    if (step.kernel) {
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

std::vector<Tensor> Executable::run(const std::vector<Tensor>& inputs) const {
  auto [id, room] = std::exchange(reserved(), {});
  if (id != id_) {
    room = make_room();
  }
  room.instance->run(
      static_cast<char*>(room.arena.get()), inputs, room.results);
  std::lock_guard lock(mutex_);
  if (idle_.size() < kIdleInstances) {
    idle_.push_back(std::move(room.instance));
  }
  return std::move(room.results);
}

} // namespace at::native::zendnn::plan
