// zendnn::run_region: a region of an exported program. It gets what a plan is
// made from, as tensors, numbers and text, since those are what torch.export
// saves and AOTInductor calls operators with. The plan is looked up by them.
#include <torch/csrc/zendnn/Region.h>

#include <ATen/native/zendnn/Operands.h>
#include <torch/csrc/zendnn/Seen.h>
#include <torch/csrc/zendnn/Tags.h>
#include <torch/csrc/zendnn/plan/Plan.h>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/hash.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace at::native::zendnn {
namespace {

using plan::Tensors;

constexpr const char* kName = "zendnn::run_region";
// The overload whose results have the dtypes that were stated, as compilers
// rely on. The other one obeys autocast and is taken apart into this one.
constexpr const char* kTyped = "typed";

// Added to a dtype: autocast lowers the result to its own.
constexpr int64_t kLowered = 1 << 8;

// What the operator is given. `results` has the type of each result: its
// dtype, its rank, its sizes and its strides.
struct Call {
  TensorList tensors{};
  IntArrayRef numbers{};
  TensorList constants{};
  IntArrayRef results{};
  std::string_view description{}, name{};
};

// ---- Plans

// A constant that a plan was made from, with its layout, which nobody guards.
class Known {
 public:
  explicit Known(const Tensor& tensor)
      : seen_(tensor), sizes_(tensor.sizes()), strides_(tensor.strides()) {}

  bool is(const Tensor& tensor) const {
    return seen_.is_unchanged(tensor) && sizes_ == tensor.sizes() &&
           strides_ == tensor.strides();
  }

  bool is_over() const {
    const auto held = seen_.lock();
    return !held.defined() || !is(held);
  }

 private:
  Seen seen_;
  DimVector sizes_, strides_;
};

using PlanPtr = c10::intrusive_ptr<plan::Plan>;

// A plan and what it was made from.
class CachedPlan {
 public:
  explicit CachedPlan(const Call& of)
      : known_(of.constants.begin(), of.constants.end()) {
    Tensors constants;
    for (const auto& constant : of.constants) {
      // One that does not keep the program's own tensor alive.
      constants.push_back(constant.variable_data());
    }
    plan_ = c10::make_intrusive<plan::Plan>(
        std::string(of.description),
        std::move(constants),
        std::string(of.name));
  }

  bool is_of(const Call& of) const {
    return std::equal(
               known_.begin(),
               known_.end(),
               of.constants.begin(),
               of.constants.end(),
               [](const Known& known, const Tensor& tensor) {
                 return known.is(tensor);
               }) &&
           plan_->description() == of.description && plan_->name() == of.name;
  }

  // Whether a constant is gone or has changed.
  bool is_over() const {
    return std::any_of(known_.begin(), known_.end(), [](const Known& known) {
      return known.is_over();
    });
  }

  const PlanPtr& plan() const {
    return plan_;
  }

 private:
  std::vector<Known> known_;
  PlanPtr plan_;
};

// The plans of all regions that have run. They are looked up by what is cheap
// to read, then compared.
class Plans {
 public:
  // Null where there is none.
  PlanPtr known(const Call& of) {
    const std::shared_lock lock(mutex_);
    return find(key_of(of), of);
  }

  PlanPtr plan(const Call& of) {
    if (auto found = known(of)) {
      return found;
    }
    const auto key = key_of(of);
    std::vector<PlanPtr> dropped; // destroyed without the lock
    const std::unique_lock lock(mutex_);
    if (auto found = find(key, of)) {
      return found;
    }
    std::erase_if(plans_, [&](const auto& it) {
      const bool over = it.second.is_over();
      if (over) {
        dropped.push_back(it.second.plan());
      }
      return over;
    });
    return plans_.emplace(key, CachedPlan(of))->second.plan();
  }

 private:
  static size_t key_of(const Call& of) {
    const auto* const first =
        of.constants.empty() ? nullptr : of.constants[0].unsafeGetTensorImpl();
    return c10::get_hash(
        static_cast<const void*>(first), of.name, of.description.size());
  }

  PlanPtr find(size_t key, const Call& of) const {
    const auto [begin, end] = plans_.equal_range(key);
    const auto found = std::find_if(
        begin, end, [&](const auto& it) { return it.second.is_of(of); });
    return found == end ? nullptr : found->second.plan();
  }

  std::shared_mutex mutex_;
  std::unordered_multimap<size_t, CachedPlan> plans_;
};

Plans& plans() {
  static auto* all = new Plans;
  return *all;
}

// ---- The operator

// Calls `each` with the dtype, sizes and strides of each result, and whether
// autocast lowers it.
template <typename Int, typename Each>
void for_each_result(ArrayRef<Int> results, const Each& each) {
  const auto number = [&](size_t at) {
    if constexpr (std::is_same_v<Int, c10::SymInt>) {
      return results[at].expect_int();
    } else {
      return results[at];
    }
  };
  for (size_t at = 0; at < results.size();) {
    TORCH_CHECK(at + 2 <= results.size(), kName, ": results without a rank");
    const auto dtype = static_cast<ScalarType>(number(at) % kLowered);
    const bool is_lowered = number(at) >= kLowered;
    const auto rank = static_cast<size_t>(number(at + 1));
    at += 2;
    TORCH_CHECK(
        at + 2 * rank <= results.size(), kName, ": results without sizes");
    each(
        dtype,
        results.slice(at, rank),
        results.slice(at + rank, rank),
        is_lowered);
    at += 2 * rank;
  }
}

bool has_strides(const Tensor& tensor, IntArrayRef strides) {
  for (size_t i = 0; i < strides.size(); ++i) {
    if (tensor.sizes()[i] > 1 && tensor.strides()[i] != strides[i]) {
      return false;
    }
  }
  return true;
}

// The program was compiled for these sizes and strides.
Tensors as_promised(const Call& of, Tensors results) {
  size_t i = 0;
  for_each_result(of.results, [&](auto dtype, auto sizes, auto strides, bool) {
    auto& tensor = results.at(i++);
    TORCH_CHECK(
        tensor.sizes() == sizes,
        of.name,
        ": a result of ",
        tensor.sizes(),
        " where the program has ",
        sizes);
    if (!has_strides(tensor, strides) || tensor.scalar_type() != dtype) {
      tensor = at::empty_strided(sizes, strides, tensor.options().dtype(dtype))
                   .copy_(tensor);
    }
  });
  return results;
}

Tensors run(const Call& of) {
  const auto plan = plans().plan(of);
  const auto tensors = of.tensors.vec();
  const auto numbers = of.numbers.vec();
  if (!plan->takes(tensors, numbers)) {
    return as_promised(of, plan->interpret(tensors, numbers));
  }
  auto results = plan->run(tensors, numbers);
  if (plan->is_due(tensors, numbers)) {
    const auto original = plan->interpret(tensors, numbers);
    results = plan->verified(tensors, numbers, results, original);
  }
  return as_promised(of, std::move(results));
}

// The tensors that a region is given, and its constants, which follow them.
std::pair<TensorList, TensorList> parted(
    TensorList tensors,
    int64_t constants) {
  const auto count = static_cast<size_t>(constants);
  TORCH_CHECK(count <= tensors.size(), kName, ": constants are missing");
  const auto operands = tensors.size() - count;
  return {tensors.slice(0, operands), tensors.slice(operands)};
}

Tensors kernel(
    TensorList tensors,
    OptionalIntArrayRef numbers,
    IntArrayRef results,
    int64_t constants,
    std::string_view description,
    std::string_view name) {
  const auto [operands, known] = parted(tensors, constants);
  return run(
      {operands,
       numbers.value_or(IntArrayRef()),
       known,
       results,
       description,
       name});
}

// What the results look like.
Tensors meta(
    TensorList /*tensors*/,
    OptionalSymIntArrayRef /*numbers*/,
    SymIntArrayRef results,
    int64_t /*constants*/,
    std::string_view /*description*/,
    std::string_view /*name*/) {
  Tensors tensors;
  for_each_result(results, [&](auto dtype, auto sizes, auto strides, bool) {
    tensors.push_back(at::empty_strided_symint(
        sizes, strides, TensorOptions(dtype).device(kMeta)));
  });
  return tensors;
}

// For what records gradients, is batched, traced or lowered.
Tensors interpret(
    TensorList tensors,
    OptionalSymIntArrayRef numbers,
    SymIntArrayRef /*results*/,
    int64_t constants,
    std::string_view description,
    std::string_view name) {
  const auto [operands, known] = parted(tensors, constants);
  plan::Integers integers;
  for (const auto& number : numbers.value_or(SymIntArrayRef())) {
    integers.push_back(number.guard_int(__FILE__, __LINE__));
  }
  return plan::Plan(std::string(description), known.vec(), std::string(name))
      .interpret(operands.vec(), integers);
}

Tensors autograd(
    TensorList tensors,
    OptionalSymIntArrayRef numbers,
    SymIntArrayRef results,
    int64_t constants,
    std::string_view description,
    std::string_view name) {
  if (at::GradMode::is_enabled() &&
      std::any_of(tensors.begin(), tensors.end(), needs_grad)) {
    return interpret(tensors, numbers, results, constants, description, name);
  }
  static const auto handle = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow(kName, kTyped)
                                 .typed<decltype(meta)>();
  const at::AutoDispatchBelowADInplaceOrView below;
  return handle.call(tensors, numbers, results, constants, description, name);
}

// The dtype that autocast gives each result; none where it lowers none.
std::vector<ScalarType> lowered(SymIntArrayRef results) {
  const auto autocast = at::autocast::get_autocast_dtype(kCPU);
  std::vector<ScalarType> dtypes;
  bool any = false;
  for_each_result(results, [&](auto dtype, auto, auto, bool is_lowered) {
    any = any || (is_lowered && dtype != autocast);
    dtypes.push_back(is_lowered ? autocast : dtype);
  });
  return any ? dtypes : std::vector<ScalarType>();
}

// As the program's own operators would run: autocast lowers what it would lower
// there, which a plan does not do.
Tensors obey_autocast(
    TensorList tensors,
    OptionalSymIntArrayRef numbers,
    SymIntArrayRef results,
    int64_t constants,
    std::string_view description,
    std::string_view name) {
  static const auto handle = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow(kName, kTyped)
                                 .typed<decltype(meta)>();
  if (at::autocast::is_autocast_enabled(kCPU)) {
    if (const auto dtypes = lowered(results); !dtypes.empty()) {
      auto converted =
          interpret(tensors, numbers, results, constants, description, name);
      for (size_t i = 0; i < dtypes.size(); ++i) {
        converted.at(i) = converted[i].to(dtypes[i]);
      }
      return converted;
    }
  }
  return handle.call(tensors, numbers, results, constants, description, name);
}

TORCH_LIBRARY_FRAGMENT(zendnn, m) {
  constexpr const char* kSignature =
      "(Tensor[] tensors, SymInt[]? numbers, SymInt[] results, int constants, "
      "str description, str name) -> Tensor[]";
  const auto typed = std::string("run_region.") + kTyped;
  const std::vector<at::Tag> tags{
      at::Tag::pt2_compliant_tag, strides_kept<at::Tag>()};
  m.def(torch::schema(("run_region" + std::string(kSignature)).c_str()), tags);
  // vmap takes no composite apart by itself.
  for (const auto key :
       {c10::DispatchKey::CompositeImplicitAutograd,
        c10::DispatchKey::FuncTorchBatched}) {
    m.impl("run_region", torch::dispatch(key, obey_autocast));
  }
  m.def(torch::schema((typed + kSignature).c_str()), tags);
  const auto at = [&](c10::DispatchKey key, auto* run) {
    m.impl(typed.c_str(), torch::dispatch(key, run));
  };
  at(c10::DispatchKey::CPU, kernel);
  at(c10::DispatchKey::Meta, meta);
  at(c10::DispatchKey::Autograd, autograd);
  at(c10::DispatchKey::FuncTorchBatched, interpret);
  at(c10::DispatchKey::Tracer, interpret);
}

} // namespace

c10::IValue plan_of_region(
    TensorList constants,
    std::string_view description,
    std::string_view name) {
  const auto found = plans().known(
      {.constants = constants, .description = description, .name = name});
  return found ? c10::IValue(found) : c10::IValue();
}

} // namespace at::native::zendnn
