#include <torch/csrc/zendnn/plan/Plan.h>
#include <torch/csrc/zendnn/plan/PlanCall.h>
#include <torch/csrc/zendnn/plan/cache/Forms.h>
#include <torch/csrc/zendnn/plan/describe/Operators.h>
#include <torch/csrc/zendnn/plan/operators/State.h>
#include <torch/csrc/zendnn/plan/run/Interpreter.h>
#include <torch/csrc/zendnn/plan/tune/Tuner.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
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
#include <cstdlib>
#include <new>
#include <sstream>
#include <string_view>

namespace at::native::zendnn::plan {
namespace {

route::Region::Shapes sizes_of(const std::vector<TensorSpec>& inputs) {
  route::Region::Shapes sizes;
  for (const auto& input : inputs) {
    sizes.emplace_back(input.sizes);
  }
  return sizes;
}

bool falls_back_by_route(const Node& node) {
  return node.fallback && node.fallback->by_route;
}

bool has_images(const Description& region) {
  return std::any_of(
      region.nodes.begin(), region.nodes.end(), [](const Node& node) {
        return node.op == Op::convolution;
      });
}

// Whether ZENDNN_PLAN_LAYOUT, a layout or "any", allows this layout.
bool may_use(std::string_view layout) {
  const auto only = read(variables::kPlanLayout);
  return only == layout || only == "any";
}

bool is_channels_last(const TensorSpec& input) {
  return (input.sizes.size() == 4 || input.sizes.size() == 5) &&
         input.sizes[1] > 1 &&
         input.strides == channels_last_strides(input.sizes);
}

// For so many sizes implementations are timed when they are new. A plan that
// sees more may see others with every call, for which timing never pays.
constexpr int kTimedAtOnce = 4;

// Those to choose from. Without convolutions, images stay as they come in.
std::vector<Layout> layouts_of(const Description& region, const Call& call) {
  const auto& inputs = call.inputs;
  if (!has_images(region)) {
    return {
        std::any_of(inputs.begin(), inputs.end(), is_channels_last)
            ? Layout::channels_last
            : Layout::row_major};
  }
  std::vector<Layout> layouts;
  if (may_use("channels_last")) {
    layouts.push_back(Layout::channels_last);
  }
  if (may_use("blocked") &&
      (layouts.empty() || !region.without.contains("choose_layout"))) {
    layouts.push_back(Layout::blocked);
  }
  return layouts;
}

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
  try {
    return parse(description);
  } catch (const Refused& error) {
    TORCH_CHECK(false, "ZenDNN plan ", name, ": ", error.what());
  }
}

// Whether autocast computes a node in float32: pools of three dimensions.
bool is_widened(const Values& values, const Node& node) {
  return std::holds_alternative<attr::pool>(node.attributes) &&
         values.sizes(node.inputs[0].index).size() == 5;
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

// Multiply-adds for which a plain loop takes a tenth of a second.
constexpr double kMuch = 1e7;

bool is_slow(const Built& built) {
  const auto& steps = built.executable->program().steps;
  return std::any_of(steps.begin(), steps.end(), [](const auto& step) {
    return step->flops > kMuch && step->primitive &&
           is_reference(step->implementation);
  });
}

// A layout with such a loop is not timed beside one without.
void leave_out_slow(std::vector<Built>& built) {
  if (!std::all_of(built.begin(), built.end(), is_slow)) {
    std::erase_if(built, is_slow);
  }
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
  tell_early_warnings();
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

std::vector<Layout> Plan::chosen_of(const std::vector<Layout>& layouts) const {
  const std::lock_guard lock(mutex_);
  return layout_ && layouts.size() > 1 ? std::vector{*layout_} : layouts;
}

bool Plan::may_change_layout() const {
  int64_t packed = 0;
  for (const auto& constant : constants_->tensors()) {
    packed += constant.dim() > 2 ? static_cast<int64_t>(constant.nbytes()) : 0;
  }
  return Forms::all().has_room_in_reserve(packed);
}

Built Plan::build(const Call& call, Occasion occasion) {
  constexpr int kTries = 3; // others may keep on taking the room
  for (int i = 1;; ++i) {
    auto built = build_tried(call, occasion);
    if (!built.executable || i == kTries ||
        Forms::all().keep(built.executable->program().pieces)) {
      if (built.executable) {
        constants_->offer(built.executable->program().forms);
      }
      constants_->release();
      return built;
    }
    const std::lock_guard lock(mutex_);
    latest_.reset();
  }
}

Built Plan::build_tried(const Call& call, Occasion occasion) {
  // torch is asked for views, strides, and results of what it computes.
  const BelowEverything below;
  const route::Decided decided(route::Says::zendnn);
  if (route::Region(call.route).leaves(name_, sizes_of(call.inputs))) {
    return {.refused = route::kReason};
  }
  const double budget = region_.tuning_budget.value_or(tuning_budget());
  const bool times = [&] {
    const std::lock_guard lock(mutex_);
    return occasion == Occasion::recurring ||
           (occasion == Occasion::call && ++builds_ <= kTimedAtOnce);
  }();
  double seconds = times ? budget : 0;
  Conditions conditions;
  std::vector<Built> built;
  const auto layouts = layouts_of(region_, call);
  auto tried = times && may_change_layout() ? layouts : chosen_of(layouts);
  if (tried.size() > 1 && call.numbers.empty() && !verifies()) {
    // A choice that is known needs no other layout to be built.
    const auto known = remembered(layout_key(call, conditions));
    const auto it =
        std::find_if(tried.begin(), tried.end(), [&](Layout layout) {
          return known == name_of(layout);
        });
    tried = it == tried.end() ? tried : std::vector{*it};
  }
  for (const auto layout : tried) {
    try {
      built.push_back(build(call, layout, conditions, seconds));
    } catch (const Refused& refused) {
      if (built.empty()) {
        return {.refused = refused.what(), .conditions = conditions};
      }
    } catch (const std::bad_alloc&) {
      if (built.empty()) {
        throw;
      }
    }
  }
  leave_out_slow(built);
  const auto choice = fastest(built, call, conditions, seconds);
  auto winner = std::move(built.at(choice.index));
  winner.conditions = conditions;
  const bool chose_all =
      winner.is_timed && choice.is_timed && tried.size() == layouts.size();
  winner.is_timed = times || budget <= 0 || chose_all;
  {
    const std::lock_guard lock(mutex_);
    layout_ = winner.layout.value_or(tried.front());
  }
  built.clear();
  trim();
  save_choices();
  return winner;
}

Built Plan::build(
    const Call& call,
    Layout layout,
    Conditions& conditions,
    double& seconds) {
  Built result;
  if (has_images(region_)) {
    result.layout = layout;
  }
  std::optional<Description> without; // the nodes that are left to torch
  bool is_routed = call.route.version == 0;
  const auto before = take_predecessor(layout, /*tunes=*/seconds > 0);
  while (!result.executable) {
    try {
      or_refuse([&] {
        const auto& region = without ? *without : region_;
        auto* const known = without ? nullptr : before.get();
        Values values(
            region,
            constants_,
            call,
            conditions,
            known != nullptr ? &known->inferred : nullptr);
        if (!std::exchange(is_routed, true)) {
          auto routed = region;
          result.routed_calls = fall_back_by_route(routed, values, call.route);
          if (std::any_of(
                  routed.nodes.begin(),
                  routed.nodes.end(),
                  falls_back_by_route)) {
            without = std::move(routed);
            return; // infers again, since what torch makes may lie otherwise
          }
        }
        Builder builder(
            std::move(values), packed_, chosen_, layout, seconds, known);
        result.executable = builder.build();
        result.is_timed = builder.is_timed();
        for (const auto& node : region.nodes) {
          if (row_of(node.op).casts) {
            result.products.insert(
                builder.values().dtype(node.inputs[0].index));
          }
          if (is_widened(builder.values(), node)) {
            result.widened.insert(builder.values().dtype(node.inputs[0].index));
          }
          if (node.fallback) {
            result.fallbacks.push_back(*node.fallback);
          }
        }
        if (!without && !result.layout) {
          auto latest =
              std::make_unique<Predecessor>(std::move(builder).predecessor());
          const std::lock_guard lock(mutex_);
          latest_.swap(latest);
        }
      });
    } catch (const RefusedNode& refused) {
      // All over again: what is built depends on what torch computes.
      if (!without) {
        without = region_;
      }
      fall_back(*without, refused);
    }
  }
  return result;
}

std::unique_ptr<Predecessor> Plan::take_predecessor(Layout layout, bool tunes) {
  const std::lock_guard lock(mutex_);
  return latest_ && latest_->layout == layout &&
                 latest_->threads == at::get_num_threads() &&
                 latest_->tunes == tunes && !verifies()
             ? std::move(latest_)
             : nullptr;
}

std::string Plan::layout_key(const Call& call, const Conditions& conditions)
    const {
  std::ostringstream key;
  key << "layout " << std::hash<std::string>{}(description_) << std::dec;
  for (const auto& constant : constants_->tensors()) {
    key << ' ' << constant.sizes() << c10::toString(constant.scalar_type());
  }
  for (const auto& input : call.inputs) {
    key << ' ' << input.sizes << input.strides << c10::toString(input.dtype);
  }
  for (const auto index : conditions.fixed) {
    key << ' ' << call.numbers[index];
  }
  key << " threads " << at::get_num_threads();
  return key.str();
}

Choice Plan::fastest(
    const std::vector<Built>& built,
    const Call& call,
    const Conditions& conditions,
    double& seconds) const {
  const auto& inputs = call.inputs;
  if (built.size() < 2 ||
      !std::all_of(inputs.begin(), inputs.end(), is_compact)) {
    return {}; // stand-ins would take all the memory that strides span
  }
  Tensors stand_ins; // made when there is something to time
  std::vector<Candidate> candidates;
  for (const auto& each : built) {
    candidates.push_back(
        {name_of(*each.layout), [&, executable = each.executable] {
           if (stand_ins.empty()) {
             for (const auto& input : inputs) {
               stand_ins.push_back(zeros(input));
             }
           }
           executable->run(stand_ins, call.numbers);
         }});
  }
  return choose(layout_key(call, conditions), candidates, seconds);
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
