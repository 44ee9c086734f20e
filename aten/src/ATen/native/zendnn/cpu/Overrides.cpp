// Replaces ATen's CPU kernels by ours.
#include <ATen/native/zendnn/cpu/Overrides.h>

#include <ATen/native/zendnn/cpu/Row.h>
#include <c10/util/Exception.h>

#include <chrono>

namespace at::native::zendnn::cpu {
namespace {

struct Silent final : c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

using List = void (*)(torch::Library& m);

// Not a TORCH_LIBRARY_IMPL block, since the dispatcher would warn of each
// replaced kernel.
torch::Library override_kernels(
    c10::DispatchKey key,
    std::initializer_list<List> lists) {
  Silent silent;
  c10::WarningUtils::WarningHandlerGuard guard(&silent);
  torch::Library m(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  for (const auto list : lists) {
    list(m);
  }
  return m;
}

const torch::Library for_cpu = override_kernels(
    c10::DispatchKey::CPU,
    {list_products,
     list_attention,
     list_convolutions,
     list_pooling,
     list_recurrences,
     list_embedding_bags,
     list_random,
     list_normalizations,
     list_batch_norms,
     list_functions});
// Composite operators stay composites: with a backend kernel, autograd and
// tracers would lose the decomposition.
const torch::Library for_composites = override_kernels(
    c10::DispatchKey::CompositeImplicitAutograd,
    {list_grus, list_rms_norms});

} // namespace

std::unique_ptr<Operation> begin_operation(const char* name, Reason reason) {
  return std::make_unique<Operation>(
      reason == nullptr
          ? Event{.operation = name}
          : Event{.operation = name, .route = Route::torch, .reason = reason});
}

void describe(Operation& of, const Tensor& t) {
  of.add_operand(t);
}

void describe(Operation& of, const std::optional<Tensor>& t) {
  if (t) {
    describe(of, *t);
  }
}

void describe(Operation& of, TensorList tensors) {
  for (const auto& t : tensors) {
    describe(of, t);
  }
}

std::vector<const char*>& overridden() {
  static std::vector<const char*> names;
  return names;
}

double nanoseconds_of_asking(int64_t operators) {
  using Clock = std::chrono::steady_clock;
  int64_t heard = 0;
  const auto start = Clock::now();
  for (int64_t i = 0; i < operators; ++i) {
    if (listening()) {
      ++heard;
    }
    if (route::is_set()) {
      ++heard;
    }
    asm volatile("" : "+r"(heard) : : "memory"); // asks again each time
  }
  const std::chrono::duration<double, std::nano> all = Clock::now() - start;
  return all.count() / static_cast<double>(operators);
}

std::vector<std::string> override_names() {
  return {overridden().begin(), overridden().end()};
}

} // namespace at::native::zendnn::cpu
