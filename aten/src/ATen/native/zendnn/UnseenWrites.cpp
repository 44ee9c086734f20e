#include <ATen/native/zendnn/UnseenWrites.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/ScopeExit.h>
#include <torch/library.h>

#include <initializer_list>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace at::native::zendnn::unseen_writes {
namespace {

// Addresses of storages that are gone would add up otherwise.
constexpr size_t kMaxStorages = 1 << 16;

struct Noted {
  std::shared_mutex mutex;
  // The last write to each storage, and the last one that was forgotten.
  std::unordered_map<const c10::StorageImpl*, uint64_t> last;
  uint64_t forgotten = 0;
};

Noted& noted() {
  static auto* all = new Noted;
  return *all;
}

const c10::StorageImpl* storage_of(const Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

void note_all(const c10::IValue& written) {
  if (written.isTensor()) {
    note(written.toTensor());
  } else {
    for (const auto& part : written.toListRef()) {
      note_all(part);
    }
  }
}

// Runs an operator that writes its first argument: a tensor, or lists of them.
void run_and_note(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet keys,
    torch::jit::Stack* stack) {
  const auto written =
      torch::jit::peek(*stack, 0, op.schema().arguments().size());
  const auto after = c10::make_scope_exit([&] { note_all(written); });
  const at::AutoDispatchBelowADInplaceOrView below;
  op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
}

void add_all(torch::Library& m, std::initializer_list<const char*> operators) {
  for (const auto* name : operators) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_and_note>());
  }
}

TORCH_LIBRARY_IMPL(aten, ADInplaceOrView, m) {
  add_all(
      m,
      {"_fused_sgd_",
       "_fused_sgd_.tensor_lr",
       "_fused_adam_",
       "_fused_adam_.tensor_lr",
       "_fused_adamw_",
       "_fused_adamw_.tensor_lr",
       "_fused_adagrad_",
       "_fused_adagrad_.tensor_lr"});
}

TORCH_LIBRARY_IMPL(c10d, ADInplaceOrView, m) {
  add_all(
      m,
      {"broadcast_",
       "allreduce_",
       "allreduce_coalesced_",
       "reduce_",
       "reduce_scatter_",
       "_reduce_scatter_base_",
       "reduce_scatter_tensor_coalesced_",
       "allgather_",
       "_allgather_base_",
       "allgather_coalesced_",
       "allgather_into_tensor_coalesced_",
       "gather_",
       "scatter_",
       "alltoall_",
       "alltoall_base_",
       "recv_",
       "recv_any_source_"});
}

} // namespace

void note(const Tensor& written) {
  auto& all = noted();
  const std::unique_lock lock(all.mutex);
  if (all.last.size() >= kMaxStorages) {
    all.last.clear();
    all.forgotten = count();
  }
  all.last[storage_of(written)] = ++detail::count;
}

std::atomic<uint64_t> detail::count{0};

bool detail::are_among(const Tensor& tensor, uint64_t since) {
  auto& all = noted();
  const std::shared_lock lock(all.mutex);
  const auto found = all.last.find(storage_of(tensor));
  return (found == all.last.end() ? all.forgotten : found->second) > since;
}

} // namespace at::native::zendnn::unseen_writes
