#include <torch/csrc/zendnn/plan/Plan.h>
#include <torch/csrc/zendnn/plan/PlanCall.h>
#include <torch/csrc/zendnn/plan/operators/State.h>
#include <torch/csrc/zendnn/plan/run/Interpreter.h>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/zendnn/Context.h>
#include <ATen/native/zendnn/Cpu.h>
#include <ATen/native/zendnn/Environment.h>
#include <ATen/native/zendnn/Events.h>
#include <ATen/native/zendnn/Operands.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <sstream>

namespace at::native::zendnn::plan {
namespace {

// The values that layers read as their weights, and what those are joined from.
std::set<int64_t> weights_of(const Description& region) {
  std::set<int64_t> weights;
  for (auto node = region.nodes.rbegin(); node != region.nodes.rend(); ++node) {
    const bool layer = node->op == Op::convolution || node->op == Op::linear;
    const bool joins = node->op == Op::cat && weights.contains(node->output());
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      if (node->inputs[i].kind == Operand::Kind::value &&
          (joins || (layer && i == 1))) {
        weights.insert(node->inputs[i].index);
      }
    }
  }
  return weights;
}

// Under autocast, a region must already convert what products read, as it does
// if the module was traced under autocast, and what is computed in float32.
bool agree_with_autocast(
    const std::set<c10::ScalarType>& products,
    const std::set<c10::ScalarType>& widened = {}) {
  return !at::autocast::is_autocast_enabled(at::kCPU) ||
         (std::all_of(
              products.begin(),
              products.end(),
              [](auto dtype) {
                return dtype == at::autocast::get_autocast_dtype(at::kCPU);
              }) &&
          std::all_of(widened.begin(), widened.end(), [](auto dtype) {
            return dtype == kFloat;
          }));
}

Description parse_for(const std::string& name, const std::string& description) {
  tell_early_warnings();
  try {
    return parse(description);
  } catch (const Refused& error) {
    TORCH_CHECK(false, "ZenDNN plan ", name, ": ", error.what());
  }
}

// Whether results differ by no more than rounding in a whole region, by the
// tolerance of their dtype.
bool are_near(const Tensor& a, const Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) {
    return false;
  }
  const at::NoGradGuard no_grad;
  if (!a.is_floating_point()) {
    return at::equal(a, b);
  }
  const auto x = a.to(at::kDouble), y = b.to(at::kDouble);
  const auto finite = y.masked_fill(y.isfinite().logical_not(), 0);
  const auto* const dtype = find_kernel_dtype(a.scalar_type());
  const auto share =
      (dtype != nullptr ? dtype : find_kernel_dtype(kFloat))->tolerance;
  const auto most = y.numel() > 0 ? finite.abs().max().item<double>() : 0.;
  return at::allclose(x, y, share, share * most, /*equal_nan=*/true);
}

} // namespace

Plan::Plan(
    const std::string& description,
    Tensors constants,
    const std::string& name)
    : Plan(
          description,
          parse_for(name, description),
          std::move(constants),
          name) {}

Plan::Plan(const Description& region, Tensors constants, std::string name)
    : Plan(write(region), region, std::move(constants), std::move(name)) {}

Plan::Plan(
    std::string description,
    Description region,
    Tensors constants,
    std::string name)
    : description_(std::move(description)),
      region_(std::move(region)),
      constants_(std::make_shared<ConstantStore>(std::move(constants))),
      name_(std::move(name)),
      cache_(
          [this](const Call& call, Occasion why) { return build(call, why); },
          [this] { trim(); }) {
  TORCH_CHECK(
      region_.constants.size() == constants_->tensors().size(),
      "ZenDNN plan ",
      name_,
      " comes with ",
      constants_->tensors().size(),
      " constants and wants ",
      region_.constants.size());
  states_ = states_of(region_);
  const auto weights = weights_of(region_);
  for (size_t i = 0; i < region_.constants.size(); ++i) {
    if (weights.contains(region_.constants[i])) {
      weights_.insert(constants_->tensors()[i].scalar_type());
    }
  }
}

bool Plan::is_count(const Tensors& tensors, const Integers& numbers) const {
  const auto wanted = static_cast<size_t>(std::count_if(
      region_.inputs.begin(), region_.inputs.end(), [](const auto& input) {
        return input.is_number;
      }));
  return numbers.size() == wanted &&
         tensors.size() == region_.inputs.size() - wanted;
}

bool Plan::fits(const Tensors& tensors, const Integers& numbers) const {
  return uses(Isa::avx2) && is_count(tensors, numbers) &&
         std::all_of(tensors.begin(), tensors.end(), is_plain);
}

bool Plan::takes(const Tensors& tensors, const Integers& numbers) {
  const auto to_torch = [this](const std::string& reason) {
    if (listening()) {
      const Operation operation(
          {.operation = name_, .route = Route::torch, .reason = reason});
    }
    return false;
  };
  constexpr const char* kAutocast = "autocast to another type";
  if (!enabled()) {
    return to_torch("ZenDNN is switched off");
  }
  if (!fits(tensors, numbers)) {
    return to_torch(
        "other inputs than plain tensors and numbers, or other CPUs");
  }
  // The weights tell before anything is built.
  if (!agree_with_autocast(weights_)) {
    return to_torch(kAutocast);
  }
  const bool grad = at::GradMode::is_enabled();
  for (const auto& tensor : tensors) {
    if (grad && tensor.requires_grad()) {
      return to_torch("an input whose gradient is wanted");
    }
  }
  if (!are_writable(states_, tensors)) {
    return to_torch("a state that torch lets nobody write");
  }
  if (!are_apart(states_, tensors)) {
    return to_torch("a state that shares memory with another input");
  }
  try {
    const auto built = cache_.find(tensors, numbers);
    if (!built->executable) {
      return to_torch(built->refused);
    }
    if (!agree_with_autocast(built->products, built->widened)) {
      return to_torch(kAutocast);
    }
    built->executable->reserve();
    return true;
  } catch (const std::bad_alloc&) {
    static std::atomic<bool> warned{false};
    const Event event{
        .operation = name_,
        .route = Route::torch,
        .reason =
            "cannot get the memory that it wants, so that its operators "
            "run on torch's own kernels."};
    const bool again = warned.exchange(true);
    if (again && !c10::WarningUtils::get_warnAlways()) {
      tell(event);
    } else {
      warn(event);
    }
    return false; // the operators themselves need less
  }
}

void Plan::check_fits(
    bool fits,
    const Tensors& tensors,
    const Integers& numbers) const {
  TORCH_CHECK(
      fits,
      "ZenDNN plan ",
      name_,
      " does not take ",
      tensors.size(),
      " tensors and ",
      numbers.size(),
      " numbers");
}

Tensors Plan::interpret(const Tensors& tensors, const Integers& numbers) const {
  check_fits(is_count(tensors, numbers), tensors, numbers);
  return plan::interpret(region_, operands(), tensors, numbers);
}

Tensors Plan::run(const Tensors& tensors, const Integers& numbers) {
  at::RecordFunction range(at::RecordScope::FUNCTION);
  if (range.isActive()) {
    const auto recorded = range.needsInputs() ? arguments(tensors, numbers)
                                              : std::vector<c10::IValue>{};
    range.before(
        "zendnn::" + name_,
        c10::ArrayRef<const c10::IValue>(recorded.data(), recorded.size()));
  }
  check_fits(fits(tensors, numbers), tensors, numbers);
  const auto built = cache_.find(tensors, numbers);
  TORCH_CHECK(
      built->executable,
      "ZenDNN plan ",
      name_,
      " does not take these inputs: ",
      built->refused);
  for (const auto state : states_) {
    tensors[state].unsafeGetTensorImpl()->bump_version(); // for autograd
  }
  auto results = built->executable->run(tensors, numbers);
  constants_->release_later();
  if (built->routed_calls > 0) {
    route::advance(built->routed_calls);
  }
  if (built->fallbacks.empty()) { // builds run torch's operators to time them
    cache_.look_ahead();
  }
  return results;
}

std::vector<c10::IValue> Plan::arguments(
    const Tensors& tensors,
    const Integers& numbers) const {
  std::vector<c10::IValue> all(tensors.begin(), tensors.end());
  if (listening()) {
    all.emplace_back(numbers);
    all.emplace_back(constants());
    all.emplace_back(description_);
  }
  return all;
}

bool Plan::is_due(const Tensors& tensors, const Integers& numbers) {
  return verifies() && cache_.find(tensors, numbers)->due->exchange(false);
}

Tensors Plan::verified(
    const Tensors& tensors,
    const Integers& numbers,
    const Tensors& results,
    const Tensors& original) {
  bool same = results.size() == original.size();
  for (size_t i = 0; same && i < results.size(); ++i) {
    same = are_near(results[i], original[i]);
  }
  if (!same) {
    std::ostringstream sizes;
    for (const auto& tensor : tensors) {
      sizes << ' ' << tensor.sizes();
    }
    warn(
        {.operation = name_,
         .route = Route::torch,
         .reason = "differs from its original operators, which run from now "
                   "on, for inputs of" +
                   sizes.str()});
    cache_.refuse(
        tensors, numbers, "results that differ from the original operators'");
  }
  return original;
}

std::optional<Tensors> run_where_taken(
    const c10::IValue& plan,
    const Tensors& tensors,
    const Integers& numbers) {
  const auto held = plan.toCustomClass<Plan>();
  return held->takes(tensors, numbers)
             ? std::optional(held->run(tensors, numbers))
             : std::nullopt;
}

void Plan::clear() {
  cache_.clear(); // waits for a build of another thread, which sets latest_
  {
    const std::lock_guard lock(mutex_);
    latest_.reset();
    builds_ = 0;
  }
  constants_->restored();
  trim();
}

void Plan::trim() {
  packed_.trim();
  chosen_.trim();
}

} // namespace at::native::zendnn::plan
