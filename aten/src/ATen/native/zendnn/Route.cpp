// Looks calls up in the table of the route.
#include <ATen/native/zendnn/Route.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/operator_name.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <sstream>
#include <unordered_map>
#include <utility>

namespace at::native::zendnn::route {

std::atomic<uint64_t> version{0};

namespace {

using Shapes = Region::Shapes;

bool is_like(const Rule& rule, const Shapes& shapes) {
  const auto is_size = [](int64_t wanted, int64_t size) {
    return wanted < 0 || wanted == size;
  };
  const auto is_shape = [&](const std::optional<Pattern>& wanted,
                            IntArrayRef sizes) {
    return !wanted || std::equal(
                          wanted->begin(),
                          wanted->end(),
                          sizes.begin(),
                          sizes.end(),
                          is_size);
  };
  return rule.shapes.size() <= shapes.size() &&
         std::equal(
             rule.shapes.begin(), rule.shapes.end(), shapes.begin(), is_shape);
}

Says said_by(const Rule& rule) {
  return rule.offload ? Says::zendnn : Says::torch;
}

uint64_t version_of(const Table& table) {
  std::ostringstream text;
  for (const auto* rules : {&table.rules, &table.chart}) {
    text << '|' << table.otherwise;
    for (const auto& [operators, shapes, offload] : *rules) {
      text << ';' << c10::Join(",", operators) << ':' << offload;
      for (const auto& shape : shapes) {
        text << (shape ? '(' : '*')
             << c10::Join(",", shape.value_or(Pattern()));
      }
    }
  }
  return std::max<uint64_t>(std::hash<std::string>()(text.str()), 1);
}

// Without its overload.
std::string without_overload(const std::string& name) {
  return name.substr(0, name.find('.'));
}

c10::OperatorName parse(const std::string& name) {
  const auto dot = name.find('.');
  return {
      name.substr(0, dot),
      dot == std::string::npos ? "" : name.substr(dot + 1)};
}

bool has(const Rule& rule, const std::string& operator_name) {
  return std::find(
             rule.operators.begin(), rule.operators.end(), operator_name) !=
         rule.operators.end();
}

// The operators of a node have no overloads.
bool has_any(const Rule& rule, std::string_view operators) {
  return std::any_of(
      rule.operators.begin(), rule.operators.end(), [&](const auto& name) {
        const auto wanted = without_overload(name);
        for (auto rest = operators; !rest.empty();) {
          const auto end = std::min(rest.find('+'), rest.size());
          if (rest.substr(0, end) == wanted) {
            return true;
          }
          rest.remove_prefix(std::min(end + 1, rest.size()));
        }
        return false;
      });
}

} // namespace

// A table with its operators looked up.
struct Lookup {
  struct Choices {
    std::vector<const Rule*> rules{};
    bool in_chart = false;
  };

  explicit Lookup(Table of) : table(std::move(of)), version(version_of(table)) {
    for (const auto& rule : table.rules) {
      has_shapes |= !rule.shapes.empty();
      for (const auto& name : rule.operators) {
        named[parse(name)].rules.push_back(&rule);
      }
    }
    for (const auto& rule : table.chart) {
      for (const auto& name : rule.operators) {
        named[parse(name)].in_chart = true;
      }
    }
  }
  Lookup(const Lookup&) = delete;
  Lookup& operator=(const Lookup&) = delete;

  // The chart's choice for the call of an operator, which `is` finds in it.
  template <typename Is>
  Says at(size_t place, const std::string& called, const Is& is) const {
    const auto& rule = table.chart[place % table.chart.size()];
    if (is(rule)) {
      return said_by(rule);
    }
    if (!warned.exchange(true)) {
      TORCH_WARN(
          "the route has ",
          rule.operators.front(),
          " as call ",
          place % table.chart.size() + 1,
          ", where the model calls ",
          called,
          ": ZenDNN takes such calls; record the chart anew, with the model as "
          "it runs now");
    }
    return Says::nothing;
  }

  const Table table;
  const uint64_t version; // the same for equal tables, and not 0
  std::unordered_map<c10::OperatorName, Choices> named{};
  bool has_shapes = false;
  mutable std::atomic<bool> warned{false};
};

namespace {

// Never destroyed, since threads may outlive it.
struct Current {
  std::mutex mutex{};
  std::shared_ptr<const Lookup> route{};
  // All so far, by version: a plan may be built while another is set.
  std::unordered_map<uint64_t, std::shared_ptr<const Lookup>> known{};
  std::optional<at::CallbackHandle> ranges{};
  std::atomic<size_t> place{0}; // in the chart
  std::atomic<bool> leaves_others{false};
};

Current& current() {
  static auto* const instance = new Current;
  return *instance;
}

std::shared_ptr<const Lookup> lookup() {
  const std::lock_guard lock(current().mutex);
  return current().route;
}

thread_local Says innermost = Says::nothing;
thread_local bool is_decided = false;

// ---- Ranges: the operators that call ours are known by no other means
// --------

struct Range final : at::ObserverContext {
  explicit Range(Says said) : outer(std::exchange(innermost, said)) {}
  Says outer;
};

Shapes shapes_of(c10::ArrayRef<const c10::IValue> inputs) {
  Shapes shapes;
  const auto add = [&](const c10::IValue& value) {
    if (value.isTensor() && value.toTensor().defined()) {
      const auto& tensor = value.toTensor();
      const bool has_sizes =
          !tensor.is_nested() &&
          !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
      shapes.push_back(has_sizes ? tensor.sizes() : IntArrayRef());
    }
  };
  for (const auto& input : inputs) {
    if (input.isTensorList()) {
      for (const auto& element : input.toListRef()) {
        add(element);
      }
    } else {
      add(input);
    }
  }
  return shapes;
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& of) {
  const auto name = is_decided ? std::nullopt : of.operator_name();
  const auto route = name ? lookup() : nullptr;
  if (!route) {
    return nullptr;
  }
  const auto found = route->named.find(*name);
  if (found == route->named.end()) {
    return nullptr;
  }
  auto said = Says::nothing;
  if (found->second.in_chart) {
    const auto called = c10::toString(*name);
    said = route->at(current().place++, called, [&](const Rule& rule) {
      return has(rule, called);
    });
  }
  if (said == Says::nothing && !found->second.rules.empty()) {
    const auto shapes = of.needsInputs() ? shapes_of(of.inputs()) : Shapes();
    const auto& rules = found->second.rules;
    const auto first =
        std::find_if(rules.begin(), rules.end(), [&](const auto* rule) {
          return is_like(*rule, shapes);
        });
    said = first == rules.end() ? said : said_by(**first);
  }
  return said == Says::nothing ? nullptr : std::make_unique<Range>(said);
}

void end(const at::RecordFunction& /*of*/, at::ObserverContext* context) {
  if (context != nullptr) {
    innermost = static_cast<Range*>(context)->outer;
  }
}

} // namespace

void set(std::optional<Table> table) {
  auto& now = current();
  const auto route =
      table ? std::make_shared<const Lookup>(*std::move(table)) : nullptr;
  const std::lock_guard lock(now.mutex);
  if (now.ranges) {
    at::removeCallback(*std::exchange(now.ranges, std::nullopt));
  }
  if (route) {
    now.known[route->version] = route;
  }
  now.route = route;
  now.place = 0;
  now.leaves_others = route && !route->table.otherwise;
  version = route ? route->version : 0;
  if (route && !route->named.empty()) {
    now.ranges =
        at::addGlobalCallback(at::RecordFunctionCallback(begin, end)
                                  .needsInputs(route->has_shapes)
                                  .scopes({at::RecordScope::FUNCTION}));
  }
}

void restart() {
  current().place = 0;
}

bool says_torch() {
  return innermost == Says::torch ||
         (innermost == Says::nothing && current().leaves_others);
}

Decided::Decided(Says says)
    : says_(std::exchange(innermost, says)),
      is_inside_(std::exchange(is_decided, true)) {}

Decided::~Decided() {
  innermost = says_;
  is_decided = is_inside_;
}

Moment now() {
  if (!is_set()) {
    return {};
  }
  const std::lock_guard lock(current().mutex);
  const auto& route = current().route;
  const auto calls = route ? route->table.chart.size() : 0;
  return {version, calls == 0 ? 0 : current().place % calls};
}

void advance(size_t calls) {
  current().place += calls;
}

bool is_alone(const at::StepCallbacks& callbacks) {
  const auto& all = callbacks.callbacks_;
  return std::all_of(all.begin(), all.end(), [](const auto& it) {
    return it.start_ == begin;
  });
}

Region::Region(const Moment& at) : place_(at.place) {
  if (at.version != 0) {
    const std::lock_guard lock(current().mutex);
    route_ = current().known.at(at.version);
  }
}

bool Region::leaves(const std::string& name, const Shapes& shapes) const {
  if (!route_) {
    return false;
  }
  const auto& rules = route_->table.rules;
  const auto first =
      std::find_if(rules.begin(), rules.end(), [&](const Rule& rule) {
        return has(rule, "zendnn::" + name) && is_like(rule, shapes);
      });
  return first == rules.end() ? !route_->table.otherwise : !first->offload;
}

bool Region::leaves_node(std::string_view operators, const Shapes& shapes) {
  if (!route_) {
    return false;
  }
  const auto names_one = [&](const Rule& rule) {
    return has_any(rule, operators);
  };
  const auto& [rules, chart, otherwise] = route_->table;
  auto said = Says::nothing;
  if (std::any_of(chart.begin(), chart.end(), names_one)) {
    said = route_->at(place_ + calls_++, std::string(operators), names_one);
  }
  const auto first =
      std::find_if(rules.begin(), rules.end(), [&](const Rule& rule) {
        return names_one(rule) && is_like(rule, shapes);
      });
  if (said == Says::nothing && first != rules.end()) {
    said = said_by(*first);
  }
  return said == Says::torch;
}

} // namespace at::native::zendnn::route
