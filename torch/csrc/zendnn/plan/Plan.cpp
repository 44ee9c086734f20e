#include <torch/csrc/zendnn/plan/Operators.h>
#include <torch/csrc/zendnn/plan/Plan.h>
#include <torch/csrc/zendnn/plan/Settings.h>
#include <torch/csrc/zendnn/plan/State.h>
#include <torch/csrc/zendnn/plan/Tuner.h>

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/zendnn/Context.h>
#include <ATen/native/zendnn/Cpu.h>
#include <ATen/native/zendnn/Environment.h>
#include <ATen/native/zendnn/Events.h>
#include <ATen/native/zendnn/Operands.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <sstream>
#include <string_view>

namespace at::native::zendnn::plan {
namespace {

std::atomic<size_t>& capacity() {
  static std::atomic<size_t> entries = [] {
    const auto number = whole_number_from("ZENDNN_PLAN_CACHE_CAPACITY", 0, 32);
    return static_cast<size_t>(std::max<int64_t>(number, 1));
  }();
  return entries;
}

bool has_images(const Description& region) {
  return std::any_of(
      region.nodes.begin(), region.nodes.end(), [](const Node& node) {
        return node.op == "convolution";
      });
}

// Whether ZENDNN_PLAN_LAYOUT, which names a layout or is "any", allows this
// one.
bool may_use(std::string_view layout) {
  const auto only =
      word_from("ZENDNN_PLAN_LAYOUT", {"any", "channels_last", "blocked"});
  return only == layout || only == "any";
}

// Whether inputs are about as large as their elements: strides can span any
// amount of memory, and stand-ins would take all of it.
bool are_compact(const std::vector<InputSignature>& inputs) {
  return std::all_of(inputs.begin(), inputs.end(), [](const auto& input) {
    return span(input.sizes, input.strides) <= 4 * count(input.sizes);
  });
}

// The values that layers read as their weights, and what those are joined from.
std::set<int64_t> weights_of(const Description& region) {
  std::set<int64_t> weights;
  for (auto node = region.nodes.rbegin(); node != region.nodes.rend(); ++node) {
    const bool layer = node->op == "convolution" || node->op == "linear";
    const bool joins = node->op == "cat" && weights.contains(node->output());
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      if (node->inputs[i].kind == Operand::Kind::value &&
          (joins || (layer && i == 1))) {
        weights.insert(node->inputs[i].index);
      }
    }
  }
  return weights;
}

// Autocast may be on: the conversions that it would make of what products read
// must be in the region already, as where it was on while the module was
// traced.
bool agree_with_autocast(const std::set<c10::ScalarType>& products) {
  return !at::autocast::is_autocast_enabled(at::kCPU) ||
         std::all_of(products.begin(), products.end(), [](auto dtype) {
           return dtype == at::autocast::get_autocast_dtype(at::kCPU);
         });
}

// Inputs of these sizes to time executables with.
std::vector<Tensor> stand_ins(const std::vector<InputSignature>& inputs) {
  std::vector<Tensor> made;
  for (const auto& input : inputs) {
    Tensor tensor = at::detail::empty_strided_cpu(
        input.sizes, input.strides, input.dtype, false);
    std::fill_n(
        static_cast<char*>(tensor.mutable_data_ptr()),
        tensor.storage().nbytes(),
        char{0});
    made.push_back(std::move(tensor));
  }
  return made;
}

// Whether results are the same but for what rounding explains in a whole
// region: a part in ten thousand of the largest number in float32, a twentieth
// in bfloat16.
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
  const auto* const dtype = find_dtype(a.scalar_type());
  const auto share = (dtype != nullptr ? *dtype : kDtypes[0]).tolerance;
  const auto most = y.numel() > 0 ? finite.abs().max().item<double>() : 0.;
  return at::allclose(x, y, share, share * most, /*equal_nan=*/true);
}

} // namespace

size_t plan_cache_capacity() {
  return capacity();
}

void set_plan_cache_capacity(int64_t entries) {
  TORCH_CHECK_VALUE(
      entries > 0, "a plan cache holds at least 1 entry, not ", entries);
  capacity() = static_cast<size_t>(entries);
}

Plan::Plan(
    std::string description,
    std::vector<Tensor> constants,
    std::string name)
    : description_(std::move(description)),
      constants_(std::move(constants)),
      name_(std::move(name)) {
  try {
    region_ = parse(description_);
  } catch (const Refused& error) {
    TORCH_CHECK(false, "ZenDNN plan ", name_, ": ", error.what());
  }
  TORCH_CHECK(
      region_.constants.size() == constants_.size(),
      "ZenDNN plan ",
      name_,
      " comes with ",
      constants_.size(),
      " constants and wants ",
      region_.constants.size());
  states_ = states_of(region_);
  const auto weights = weights_of(region_);
  for (size_t i = 0; i < constants_.size(); ++i) {
    if (weights.contains(region_.constants[i])) {
      weights_.insert(constants_[i].scalar_type());
    }
  }
}

bool Plan::Entry::matches(
    const std::vector<Tensor>& tensors,
    const std::vector<int64_t>& given,
    int threads_now) const {
  if (threads != threads_now || inputs.size() != tensors.size() ||
      !(numbers == given || (conditions && conditions->hold(numbers, given)))) {
    return false;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].dtype != tensors[i].scalar_type() ||
        tensors[i].sizes() != IntArrayRef(inputs[i].sizes) ||
        tensors[i].strides() != IntArrayRef(inputs[i].strides)) {
      return false;
    }
  }
  return true;
}

Plan::Built Plan::build(
    const std::vector<InputSignature>& inputs,
    const std::vector<int64_t>& numbers) {
  double seconds = tuning_budget();
  std::vector<Built> built;
  std::string refused;
  Conditions conditions;
  const bool images = has_images(region_);
  const auto attempt = [&](Layout layout, const char* name) {
    try {
      built.push_back(build(inputs, numbers, layout, conditions, seconds));
      built.back().layout = images ? name : "";
    } catch (const Refused& error) {
      refused = error.what();
    } catch (const ::zendnn::error& error) {
      if (error.status == zendnn_out_of_memory) {
        throw std::bad_alloc();
      }
      refused = std::string("ZenDNN: ") + error.what();
    }
  };
  if (!images || may_use("channels_last")) {
    attempt(Layout::channels_last, "channels last");
  }
  const bool only_one = region_.without.contains("choose_layout");
  if (images && refused.empty() && may_use("blocked") && !only_one) {
    try {
      attempt(Layout::blocked, "blocked");
    } catch (const std::bad_alloc&) {
      if (built.empty()) {
        throw;
      }
    }
  }
  if (built.empty()) {
    return {.refused = refused, .conditions = conditions};
  }
  const auto chosen = fastest(built, inputs, numbers, conditions, seconds);
  auto winner = std::move(built[chosen]);
  winner.conditions = conditions;
  built.clear();
  packed_.trim();
  save_choices();
  return winner;
}

Plan::Built Plan::build(
    const std::vector<InputSignature>& inputs,
    const std::vector<int64_t>& numbers,
    Layout layout,
    Conditions& conditions,
    double& seconds) {
  Built made;
  for (;;) {
    try {
      Builder builder(
          region_,
          constants_,
          packed_,
          layout,
          made.left,
          conditions,
          seconds,
          inputs,
          numbers);
      made.executable = builder.build();
      for (const auto& node : region_.nodes) {
        if (find_operator(node.op).casts) {
          made.products.insert(builder.dtype(node.inputs[0].index));
        }
      }
      return made;
    } catch (const RefusedNode& refused) {
      // All over again: what is built depends on what torch computes.
      leave(region_, refused, made.left);
    }
  }
}

size_t Plan::fastest(
    const std::vector<Built>& built,
    const std::vector<InputSignature>& inputs,
    const std::vector<int64_t>& numbers,
    const Conditions& conditions,
    double& seconds) const {
  if (built.size() < 2 || !are_compact(inputs)) {
    return 0;
  }
  std::ostringstream key;
  key << "layout " << std::hash<std::string>{}(description_) << std::dec;
  for (const auto& constant : constants_) {
    key << ' ' << constant.sizes() << c10::toString(constant.scalar_type());
  }
  for (const auto& input : inputs) {
    key << ' ' << input.sizes << input.strides << c10::toString(input.dtype);
  }
  for (const auto index : conditions.fixed) {
    key << ' ' << numbers[index];
  }
  key << " threads " << at::get_num_threads();
  std::vector<Tensor> given; // made when there is something to time
  std::vector<Candidate> candidates;
  for (const auto& made : built) {
    candidates.push_back({made.layout, [&, executable = made.executable] {
                            if (given.empty()) {
                              given = stand_ins(inputs);
                            }
                            executable->run(given, numbers);
                          }});
  }
  return choose(key.str(), candidates, seconds).index;
}

std::shared_ptr<const Plan::Built> Plan::find(
    const std::vector<Tensor>& tensors,
    const std::vector<int64_t>& numbers) {
  const auto threads = at::get_num_threads();
  std::promise<std::shared_ptr<const Built>> promise;
  std::vector<InputSignature> inputs;
  uint64_t id = 0;
  {
    std::unique_lock lock(mutex_);
    for (auto entry = recent_.begin(); entry != recent_.end(); ++entry) {
      if (entry->matches(tensors, numbers, threads)) {
        recent_.splice(recent_.begin(), recent_, entry);
        const auto built = entry->built;
        lock.unlock();
        return built.get(); // waits when another thread is building it
      }
    }
    for (const auto& tensor : tensors) {
      inputs.push_back(
          {tensor.sizes().vec(), tensor.strides().vec(), tensor.scalar_type()});
    }
    id = ++entries_;
    recent_.push_front(
        {inputs, numbers, threads, id, promise.get_future().share()});
  }
  const auto is_this = [&](const Entry& entry) { return entry.id == id; };
  std::shared_ptr<const Built> built;
  try {
    built = std::make_shared<const Built>(build(inputs, numbers));
  } catch (...) {
    // Not a refusal but an accident, such as no memory: let the next call try.
    promise.set_exception(std::current_exception());
    std::lock_guard lock(mutex_);
    recent_.remove_if(is_this);
    throw;
  }
  promise.set_value(built);
  std::list<Entry> dropped; // destroyed without the lock
  {
    std::lock_guard lock(mutex_);
    const auto kind =
        built->executable ? Entry::Kind::runs : Entry::Kind::refused;
    const auto entry = std::find_if(recent_.begin(), recent_.end(), is_this);
    if (entry != recent_.end()) {
      entry->kind = kind;
      entry->conditions = built->conditions;
    }
    dropped = beyond_capacity(kind);
  }
  if (!dropped.empty()) {
    dropped.clear();
    packed_.trim();
  }
  return built;
}

std::list<Plan::Entry> Plan::beyond_capacity(Entry::Kind kind) {
  std::list<Entry> dropped;
  size_t kept = 0;
  for (auto entry = recent_.begin(); entry != recent_.end();) {
    const auto next = std::next(entry);
    if (entry->kind == kind && ++kept > capacity()) {
      dropped.splice(dropped.end(), recent_, entry);
    }
    entry = next;
  }
  return dropped;
}

bool Plan::fits(
    const std::vector<Tensor>& tensors,
    const std::vector<int64_t>& numbers) const {
  const auto wanted = static_cast<size_t>(std::count_if(
      region_.inputs.begin(), region_.inputs.end(), [](const auto& input) {
        return input.is_number;
      }));
  return uses(Isa::avx2) && numbers.size() == wanted &&
         tensors.size() == region_.inputs.size() - wanted &&
         std::all_of(tensors.begin(), tensors.end(), is_plain);
}

bool Plan::takes(
    const std::vector<Tensor>& tensors,
    const std::vector<int64_t>& numbers) {
  const auto to_torch = [this](const std::string& reason) {
    if (listening()) {
      tell({.operation = name_, .route = Route::torch, .reason = reason});
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
  // By the weights it can be told before anything is built.
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
    const auto built = find(tensors, numbers);
    if (!built->executable) {
      return to_torch(built->refused);
    }
    if (!agree_with_autocast(built->products)) {
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
    (again && !c10::WarningUtils::get_warnAlways() ? tell : warn)(event);
    return false; // the operators themselves want less
  }
}

std::vector<Tensor> Plan::run(
    const std::vector<Tensor>& tensors,
    const std::vector<int64_t>& numbers) {
  RECORD_FUNCTION(
      "zendnn::" + name_,
      std::vector<c10::IValue>(tensors.begin(), tensors.end()));
  TORCH_CHECK(
      fits(tensors, numbers),
      "ZenDNN plan ",
      name_,
      " does not take ",
      tensors.size(),
      " tensors and ",
      numbers.size(),
      " numbers");
  const auto built = find(tensors, numbers);
  TORCH_CHECK(
      built->executable,
      "ZenDNN plan ",
      name_,
      " does not take these inputs: ",
      built->refused);
  for (const auto state : states_) {
    tensors[state].unsafeGetTensorImpl()->bump_version(); // for autograd
  }
  return built->executable->run(tensors, numbers);
}

bool Plan::is_due(
    const std::vector<Tensor>& tensors,
    const std::vector<int64_t>& numbers) {
  return verifies() && find(tensors, numbers)->due->exchange(false);
}

std::vector<Tensor> Plan::verified(
    const std::vector<Tensor>& tensors,
    const std::vector<int64_t>& numbers,
    const std::vector<Tensor>& given,
    const std::vector<Tensor>& original) {
  bool same = given.size() == original.size();
  for (size_t i = 0; same && i < given.size(); ++i) {
    same = are_near(given[i], original[i]);
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
    std::promise<std::shared_ptr<const Built>> refused;
    refused.set_value(std::make_shared<const Built>(
        Built{.refused = "results that differ from the original operators'"}));
    const auto threads = at::get_num_threads();
    std::lock_guard lock(mutex_);
    for (auto& entry : recent_) {
      if (entry.matches(tensors, numbers, threads)) {
        entry.built = refused.get_future().share();
        entry.kind = Entry::Kind::refused;
        break;
      }
    }
  }
  return original;
}

void Plan::clear() {
  std::list<Entry> dropped;
  {
    std::lock_guard lock(mutex_);
    dropped.swap(recent_);
  }
  dropped.clear();
  packed_.trim();
}

namespace {

using PlanPtr = c10::intrusive_ptr<Plan>;

bool takes(
    const PlanPtr& plan,
    const std::vector<Tensor>& tensors,
    const std::vector<int64_t>& numbers) {
  return plan->takes(tensors, numbers);
}

std::vector<Tensor> run(
    const PlanPtr& plan,
    const std::vector<Tensor>& tensors,
    const std::vector<int64_t>& numbers) {
  return plan->run(tensors, numbers);
}

bool is_due(
    const PlanPtr& plan,
    const std::vector<Tensor>& tensors,
    const std::vector<int64_t>& numbers) {
  return plan->is_due(tensors, numbers);
}

std::vector<Tensor> verified(
    const PlanPtr& plan,
    const std::vector<Tensor>& tensors,
    const std::vector<int64_t>& numbers,
    const std::vector<Tensor>& given,
    const std::vector<Tensor>& original) {
  return plan->verified(tensors, numbers, given, original);
}

using State = std::tuple<std::string, std::vector<Tensor>, std::string>;

TORCH_LIBRARY_FRAGMENT(zendnn, m) {
  m.class_<Plan>("Plan")
      .def(torch::init<std::string, std::vector<Tensor>, std::string>())
      .def("takes", &Plan::takes)
      .def("run", &Plan::run)
      .def("explain", &Plan::explain)
      .def("clear", &Plan::clear)
      .def("description", &Plan::description)
      .def("name", &Plan::name)
      .def_pickle(
          [](const PlanPtr& plan) -> State {
            return {plan->description(), plan->constants(), plan->name()};
          },
          [](const State& state) {
            const auto& [description, constants, name] = state;
            return c10::make_intrusive<Plan>(description, constants, name);
          });
  m.def(
      "takes(__torch__.torch.classes.zendnn.Plan plan, Tensor[] tensors, int[] "
      "numbers) -> bool",
      takes);
  m.def(
      "run(__torch__.torch.classes.zendnn.Plan plan, Tensor[] tensors, int[] "
      "numbers) -> Tensor[]",
      run);
  // The same of a plan that writes to some of the tensors. An annotation of the
  // list would not say so: TorchScript takes it for the list's own.
  m.def(
      torch::schema(
          "update(__torch__.torch.classes.zendnn.Plan plan, Tensor[] tensors, "
          "int[] numbers) -> Tensor[]",
          c10::AliasAnalysisKind::CONSERVATIVE),
      run);
  m.def(
      "is_due(__torch__.torch.classes.zendnn.Plan plan, Tensor[] tensors, "
      "int[] numbers) -> bool",
      is_due);
  m.def(
      "verified(__torch__.torch.classes.zendnn.Plan plan, Tensor[] tensors, "
      "int[] numbers, Tensor[] given, Tensor[] original) -> Tensor[]",
      verified);
}

// A batched tensor is none that a plan takes: say so, and let the operators
// that the region was made from be batched.
TORCH_LIBRARY_IMPL(zendnn, FuncTorchBatched, m) {
  m.impl("takes", takes);
}

} // namespace
} // namespace at::native::zendnn::plan
