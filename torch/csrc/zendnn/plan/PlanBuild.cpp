// What a plan builds for a call: in which layout of images, and with which
// nodes left to torch.
#include <torch/csrc/zendnn/plan/Plan.h>
#include <torch/csrc/zendnn/plan/cache/Forms.h>
#include <torch/csrc/zendnn/plan/describe/Operators.h>
#include <torch/csrc/zendnn/plan/tune/Tuner.h>

#include <ATen/Parallel.h>
#include <ATen/native/zendnn/Environment.h>

#include <algorithm>
#include <new>
#include <sstream>
#include <string_view>
#include <utility>

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

// Whether autocast computes a node in float32: pools of three dimensions.
bool is_widened(const Values& values, const Node& node) {
  return std::holds_alternative<attr::pool>(node.attributes) &&
         values.sizes(node.inputs[0].index).size() == 5;
}

// Floating-point operations for which a plain loop takes a tenth of a second.
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

} // namespace at::native::zendnn::plan
