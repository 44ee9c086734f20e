// What a plan has built, for Python.
#include <torch/csrc/zendnn/plan/Plan.h>
#include <torch/csrc/zendnn/plan/describe/Operators.h>

namespace at::native::zendnn::plan {
namespace {

using c10::IValue;

IValue dictionary(
    std::initializer_list<std::pair<const char*, IValue>> entries) {
  c10::impl::GenericDict result(c10::StringType::get(), c10::AnyType::get());
  for (const auto& [key, value] : entries) {
    result.insert(std::string(key), value);
  }
  return result;
}

// What `read` makes of each item.
template <typename Items, typename Read>
IValue list_of(const Items& items, const Read& read) {
  c10::impl::GenericList result(c10::AnyType::get());
  for (const auto& item : items) {
    result.push_back(read(item));
  }
  return result;
}

// An operand or a post-op, as a description writes it.
template <typename Part>
IValue explain_part(const Part& part) {
  return text_of(part);
}

IValue explain_value(int64_t value) {
  return text_of(value_operand(value));
}

IValue explain_input(const TensorSpec& input) {
  return dictionary(
      {{"dtype", c10::toString(input.dtype)},
       {"sizes", input.sizes},
       {"strides", input.strides}});
}

IValue explain_operator(const Node& node) {
  c10::Dict<std::string, std::string> attributes;
  for (const auto& [key, text] : attributes_of(node)) {
    attributes.insert(std::string(key), text);
  }
  return dictionary(
      {{"name", name_of(node.op)},
       // The parser labels a node by its operator where the text has no label.
       {"does", node.label == name_of(node.op) ? "" : node.label},
       {"results", list_of(node.outputs, explain_value)},
       {"operands", list_of(node.inputs, explain_part<Operand>)},
       {"attributes", attributes},
       {"post_ops", list_of(node.post, explain_part<PostOp>)}});
}

IValue explain_region_input(const Description::Input& input) {
  return explain_value(input.value);
}

IValue explain_step(const std::shared_ptr<const Step>& pointer) {
  const auto& step = *pointer;
  return dictionary(
      {{"does", step.label},
       {"implementation", step.implementation},
       {"gflop", step.flops / 1e9}});
}

IValue explain_fallback(const Fallback& fallback) {
  return dictionary(
      {{"operator", fallback.label},
       {"reason", fallback.reason},
       {"ms", fallback.milliseconds}});
}

} // namespace

IValue Plan::explain() const {
  const auto explain_entry = [](const PlanCache::Entry& entry) {
    static const Program none;
    const auto& built = *entry.built;
    const auto& program = built.executable ? built.executable->program() : none;
    double flops = 0;
    for (const auto& step : program.steps) {
      flops += step->flops;
    }
    return dictionary(
        {{"inputs", list_of(entry.call->inputs, explain_input)},
         {"numbers", entry.call->numbers},
         {"threads", entry.threads},
         {"refused", built.refused},
         {"layout", built.layout ? name_of(*built.layout) : ""},
         {"border_copies", program.border_copies},
         {"taken_over", program.taken_over},
         {"arena_bytes", program.arena_bytes},
         {"gflop", flops / 1e9},
         {"wrong", program.wrong},
         {"steps", list_of(program.steps, explain_step)},
         {"left_to_torch", list_of(built.fallbacks, explain_fallback)}});
  };
  auto entries = cache_.entries();
  std::erase_if(entries, [now = route::now().version](const auto& entry) {
    return entry.call->route.version != now;
  });
  return dictionary(
      {{"name", name_},
       {"inputs", list_of(region_.inputs, explain_region_input)},
       {"constants", std::ssize(region_.constants)},
       {"operators", list_of(region_.nodes, explain_operator)},
       {"outputs", list_of(region_.outputs, explain_value)},
       {"packed_bytes", packed_.bytes()},
       {"released_bytes", constants_->released_bytes()},
       {"built_ahead", static_cast<int64_t>(cache_.built_ahead())},
       {"built", list_of(entries, explain_entry)}});
}

} // namespace at::native::zendnn::plan
