#include <torch/csrc/zendnn/compiled.h>

#include <ATen/ops/empty_permuted.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/api/object.h>
#include <torch/csrc/zendnn/Region.h>
#include <torch/csrc/zendnn/Seen.h>
#include <torch/csrc/zendnn/plan/PlanCall.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace py = pybind11;
using namespace py::literals;

namespace at::native::zendnn {
namespace {

const Tensor& tensor_in(py::handle object) {
  TORCH_CHECK_TYPE(
      THPVariable_Check(object.ptr()),
      "a compiled graph is given an object of type ",
      Py_TYPE(object.ptr())->tp_name,
      " where it reads a tensor");
  return THPVariable_Unpack(object.ptr());
}

// Whether a tensor's dimensions lie in an order, the innermost last. A plan
// leaves gaps only where torch does. Dimensions of size one lie anywhere.
bool lies_in(const Tensor& tensor, const plan::Integers& order) {
  const auto sizes = tensor.sizes(), strides = tensor.strides();
  int64_t least = 1;
  for (auto at = order.rbegin(); at != order.rend(); ++at) {
    if (sizes[*at] != 1) {
      if (strides[*at] < least) {
        return false;
      }
      least = strides[*at] * sizes[*at];
    }
  }
  return true;
}

Tensor laid_out(Tensor tensor, const plan::Integers& order) {
  if (static_cast<size_t>(tensor.dim()) != order.size() ||
      lies_in(tensor, order)) {
    return tensor;
  }
  return at::empty_permuted(tensor.sizes(), order, tensor.options())
      .copy_(tensor);
}

// A plan as Python calls it: with its tensors, then its numbers, then what it
// ignores. For each result there is the order in which its dimensions lie.
class PlanCall {
 public:
  PlanCall(
      const torch::jit::Object& plan,
      size_t tensors,
      size_t numbers,
      std::vector<plan::Integers> orders)
      : plan_(plan._ivalue()),
        tensors_(tensors),
        numbers_(numbers),
        orders_(std::move(orders)) {}

  py::object operator()(const py::args& arguments) const {
    TORCH_CHECK_TYPE(
        arguments.size() >= tensors_ + numbers_,
        "a plan is called with ",
        arguments.size(),
        " arguments and reads ",
        tensors_ + numbers_);
    plan::Tensors tensors;
    tensors.reserve(tensors_);
    for (size_t i = 0; i < tensors_; ++i) {
      tensors.push_back(tensor_in(arguments[i]));
    }
    plan::Integers numbers;
    for (size_t i = 0; i < numbers_; ++i) {
      numbers.push_back(arguments[tensors_ + i].cast<int64_t>());
    }
    std::optional<plan::Tensors> results;
    {
      const py::gil_scoped_release released;
      results = plan::run_where_taken(plan_, tensors, numbers);
      for (size_t i = 0; results && i < orders_.size(); ++i) {
        (*results)[i] = laid_out(std::move((*results)[i]), orders_[i]);
      }
    }
    if (!results) {
      return py::none();
    }
    py::tuple tuple(results->size());
    for (size_t i = 0; i < results->size(); ++i) {
      tuple[i] = py::reinterpret_steal<py::object>(
          THPVariable_Wrap(std::move((*results)[i])));
    }
    return tuple;
  }

 private:
  c10::IValue plan_;
  size_t tensors_, numbers_;
  std::vector<plan::Integers> orders_;
};

// Which tensors there were at some places of an argument list and, unless they
// are frozen, in which state. Dynamo guards their layouts.
class Snapshot {
 public:
  Snapshot(std::vector<size_t> places, const py::tuple& arguments, bool frozen)
      : places_(std::move(places)), frozen_(frozen) {
    seen_.reserve(places_.size());
    for (const auto place : places_) {
      seen_.emplace_back(tensor_in(arguments[place]));
    }
  }

  bool holds(const py::tuple& arguments) const {
    for (size_t i = 0; i < places_.size(); ++i) {
      if (!is_same(i, arguments)) {
        return false;
      }
    }
    return true;
  }

  std::vector<size_t> changed(const py::tuple& arguments) const {
    std::vector<size_t> places;
    for (size_t i = 0; i < places_.size(); ++i) {
      if (!is_same(i, arguments)) {
        places.push_back(places_[i]);
      }
    }
    return places;
  }

  // Whether a tensor is gone, so that it cannot hold again.
  bool is_over() const {
    return std::any_of(seen_.begin(), seen_.end(), [](const Seen& seen) {
      return seen.is_gone();
    });
  }

 private:
  bool is_same(size_t i, const py::tuple& arguments) const {
    if (places_[i] >= arguments.size()) {
      return false;
    }
    auto* const object = PyTuple_GET_ITEM(arguments.ptr(), places_[i]);
    if (!is_tensor(object)) {
      return false;
    }
    const auto& tensor = THPVariable_Unpack(object);
    return frozen_ ? seen_[i].is(tensor) : seen_[i].is_unchanged(tensor);
  }

  static bool is_tensor(PyObject* object) {
    return PyType_IsSubtype(
        Py_TYPE(object), reinterpret_cast<PyTypeObject*>(THPVariableClass));
  }

  std::vector<size_t> places_;
  bool frozen_;
  std::vector<Seen> seen_;
};

std::optional<torch::jit::Object> find_plan_of_region(
    const py::list& constants,
    const std::string& description,
    const std::string& name) {
  plan::Tensors tensors;
  for (const auto constant : constants) {
    tensors.push_back(tensor_in(constant));
  }
  const auto plan = plan_of_region(tensors, description, name);
  return plan.isNone() ? std::nullopt
                       : std::optional<torch::jit::Object>(plan.toObject());
}

} // namespace

void bind_compiled(py::module_& m) {
  m.def(
      "_plan_of_region",
      &find_plan_of_region,
      "The plan that zendnn::run_region has made, or None.",
      "constants"_a,
      "description"_a,
      "name"_a);
  py::class_<PlanCall>(m, "_PlanCall")
      .def(
          py::init<
              const torch::jit::Object&,
              size_t,
              size_t,
              std::vector<plan::Integers>>(),
          "plan"_a,
          "tensors"_a,
          "numbers"_a,
          "orders"_a)
      .def(
          "__call__",
          &PlanCall::operator(),
          "The results, or None where the plan does not take what it is "
          "given.");
  py::class_<Snapshot>(m, "_Snapshot")
      .def(
          py::init<std::vector<size_t>, const py::tuple&, bool>(),
          "places"_a,
          "given"_a,
          "frozen"_a = false)
      .def(
          "holds",
          &Snapshot::holds,
          "Whether the same tensors are there, unchanged.")
      .def(
          "changed",
          &Snapshot::changed,
          "The places of other tensors, or of tensors that have changed.")
      .def("is_over", &Snapshot::is_over, "Whether it cannot hold again.");
}

} // namespace at::native::zendnn
