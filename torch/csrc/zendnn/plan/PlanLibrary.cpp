// The class and the operators of plans, as torch calls and pickles them.
#include <torch/csrc/zendnn/plan/Plan.h>
#include <torch/csrc/zendnn/plan/run/Interpreter.h>

#include <torch/library.h>

namespace at::native::zendnn::plan {
namespace {

using PlanPtr = c10::intrusive_ptr<Plan>;

// A method as torch's operator calls it.
template <auto kMethod>
struct AsOperator;
template <
    typename Result,
    typename... Operands,
    Result (Plan::*kMethod)(const Operands&...)>
struct AsOperator<kMethod> {
  static Result call(const PlanPtr& plan, const Operands&... operands) {
    return ((*plan).*kMethod)(operands...);
  }
};

using State = std::tuple<std::string, Tensors, std::string>;

// What an in-place operator leaves in its target, of the result of its twin.
// Raises torch's errors of operators in place.
Tensor in_place(const Tensor& result, const Tensor& target) {
  check_fits(result, target);
  TORCH_CHECK(
      c10::canCast(result.scalar_type(), target.scalar_type()),
      "result type ",
      result.scalar_type(),
      " can't be cast to the desired output type ",
      target.scalar_type());
  return result.to(target.scalar_type());
}

// What each input is: a tensor or a number.
std::vector<std::string> inputs_of(const PlanPtr& plan) {
  std::vector<std::string> kinds;
  for (const auto& input : plan->region().inputs) {
    kinds.emplace_back(input.is_number ? "number" : "tensor");
  }
  return kinds;
}

TORCH_LIBRARY_FRAGMENT(zendnn, m) {
  m.class_<Plan>("Plan")
      .def(torch::init<std::string, Tensors, std::string>())
      .def("takes", &Plan::takes)
      .def("run", &Plan::run)
      .def("interpret", &Plan::interpret)
      .def("explain", &Plan::explain)
      .def("inputs", inputs_of)
      .def("clear", &Plan::clear)
      // As this build reads it.
      .def(
          "description",
          [](const PlanPtr& plan) { return write(plan->region()); })
      .def("name", &Plan::name)
      .def("constants", &Plan::constants)
      .def("operands", &Plan::operands)
      .def_pickle(
          [](const PlanPtr& plan) -> State {
            return {plan->description(), plan->constants(), plan->name()};
          },
          [](const State& state) {
            const auto& [description, constants, name] = state;
            return c10::make_intrusive<Plan>(description, constants, name);
          });
  using c10::AliasAnalysisKind;
  const auto schema = [](const std::string& name,
                         const std::string& more,
                         AliasAnalysisKind alias =
                             AliasAnalysisKind::FROM_SCHEMA) {
    const auto text =
        name +
        "(__torch__.torch.classes.zendnn.Plan plan, Tensor[] tensors, int[] "
        "numbers" +
        more;
    return torch::schema(text.c_str(), alias);
  };
  m.def(schema("takes", ") -> bool"), AsOperator<&Plan::takes>::call);
  m.def(schema("run", ") -> Tensor[]"), AsOperator<&Plan::run>::call);
  // The same of a plan that writes to some of the tensors. An annotation of the
  // list would not say so: TorchScript takes it for the list's own.
  m.def(
      schema("update", ") -> Tensor[]", AliasAnalysisKind::CONSERVATIVE),
      AsOperator<&Plan::run>::call);
  // What the operators of a region read where the plan does not take it.
  m.def(
      "constants(__torch__.torch.classes.zendnn.Plan plan) -> Tensor[]",
      [](const PlanPtr& plan) { return plan->operands(); });
  m.def(schema("is_due", ") -> bool"), AsOperator<&Plan::is_due>::call);
  m.def("in_place(Tensor(a) result, Tensor target) -> Tensor(a)", in_place);
  m.def(
      schema("verified", ", Tensor[] given, Tensor[] original) -> Tensor[]"),
      AsOperator<&Plan::verified>::call);
}

// Plans refuse batched tensors, so that the original operators are batched.
TORCH_LIBRARY_IMPL(zendnn, FuncTorchBatched, m) {
  m.impl("takes", AsOperator<&Plan::takes>::call);
  m.impl("in_place", in_place);
}

} // namespace
} // namespace at::native::zendnn::plan
