// torch.backends.zendnn._C: what Python needs of libtorch_zendnn.
#include <ATen/native/zendnn/Allocator.h>
#include <ATen/native/zendnn/Context.h>
#include <ATen/native/zendnn/Cpu.h>
#include <ATen/native/zendnn/Dtypes.h>
#include <ATen/native/zendnn/Environment.h>
#include <ATen/native/zendnn/Events.h>
#include <ATen/native/zendnn/Info.h>
#include <ATen/native/zendnn/Logs.h>
#include <ATen/native/zendnn/Route.h>
#include <ATen/native/zendnn/Thresholds.h>
#include <ATen/native/zendnn/cpu/Overrides.h>
#include <ATen/record_function.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/zendnn/Prepacked.h>
#include <torch/csrc/zendnn/compiled.h>
#include <torch/csrc/zendnn/plan/Settings.h>
#include <torch/csrc/zendnn/plan/build/Buffers.h>
#include <torch/csrc/zendnn/plan/cache/ConstantStore.h>
#include <torch/csrc/zendnn/plan/cache/Forms.h>
#include <torch/csrc/zendnn/plan/tune/Tuner.h>

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace py = pybind11;
namespace ctx = at::native::zendnn;
using namespace py::literals;

namespace {

// Gives a method another graph. An executor keeps the graph that it was made
// from, torch cannot drop it, and callers hold the function's address: so this
// makes the function anew in its place. Nobody may be running it.
void set_graph(
    const torch::jit::Module& module,
    const std::string& name,
    std::shared_ptr<torch::jit::Graph> graph) {
  auto& function =
      torch::jit::toGraphFunction(module.get_method(name).function());
  auto qualified = function.qualname();
  auto schema = function.getSchema();
  std::destroy_at(&function);
  std::construct_at(&function, std::move(qualified), std::move(graph), nullptr);
  function.setSchema(std::move(schema));
}

// For tests: candidates that Python makes, timed without a limit.
std::pair<size_t, std::vector<std::string>> choose(
    const std::string& key,
    const std::vector<
        std::pair<std::string, std::function<std::vector<float>()>>>&
        candidates,
    const std::function<std::vector<float>()>& judge) {
  constexpr double kPrecision = 1e-6, kSeconds = 1e9;
  const auto candidate = [&](const std::string& name, const auto& compute) {
    return ctx::plan::Candidate{
        .name = name,
        .run = [compute] { compute(); },
        .compute =
            [compute] {
              ctx::plan::Outcome outcome{.values = compute()};
              outcome.nans = std::count_if(
                  outcome.values.begin(),
                  outcome.values.end(),
                  [](float value) { return std::isnan(value); });
              return outcome;
            },
        .precision = kPrecision};
  };
  std::vector<ctx::plan::Candidate> all;
  for (const auto& [name, compute] : candidates) {
    all.push_back(candidate(name, compute));
  }
  auto seconds = kSeconds;
  auto choice = ctx::plan::choose(
      key, all, seconds, [&] { return candidate("judge", judge).compute(); });
  ctx::plan::save_choices();
  return {choice.index, std::move(choice.wrong)};
}

// For tests: where buffers of so many bytes, each needed from one step to
// another, lie in an arena, and its bytes.
std::pair<std::vector<int64_t>, int64_t> lay_out(
    const std::vector<std::tuple<int64_t, int64_t, int64_t>>& buffers) {
  ctx::plan::Buffers all;
  for (const auto& [bytes, first, last] : buffers) {
    const auto index =
        all.add({.kind = ctx::plan::BufferKind::arena, .bytes = bytes}, first);
    all.touch({index, 0}, last);
  }
  const auto [placed, total] = std::move(all).lay_out(/*share=*/true);
  std::vector<int64_t> offsets;
  for (const auto& buffer : placed) {
    offsets.push_back(buffer.index);
  }
  return {std::move(offsets), total};
}

py::dict cpu() {
  const auto& cpu = ctx::this_cpu();
  return py::dict(
      "vendor"_a = cpu.vendor,
      "name"_a = cpu.name,
      "family"_a = cpu.family,
      "model"_a = cpu.model,
      "isa"_a = ctx::name_of(cpu.isa),
      "kernels"_a = cpu.kernels,
      "caches"_a = cpu.caches,
      "cores"_a = cpu.cores,
      "cores_per_l3"_a = cpu.cores_per_l3,
      "nodes"_a = cpu.nodes,
      "emulated_on"_a = cpu.emulated_on);
}

std::map<std::string, size_t> dtypes() {
  std::map<std::string, size_t> bytes;
  for (const auto& row : ctx::kDtypes) {
    bytes.emplace(
        row.name, ctx::with_type(row, [](auto zero) { return sizeof zero; }));
  }
  return bytes;
}

// The fields of a Python Event, in order.
py::tuple as_fields(const ctx::Event& event) {
  py::list shapes, strides, dtypes, arguments;
  for (const auto& operand : event.operands) {
    shapes.append(py::tuple(py::cast(operand.sizes)));
    strides.append(py::tuple(py::cast(operand.strides)));
    dtypes.append(py::reinterpret_borrow<py::object>(
        reinterpret_cast<PyObject*>(torch::getTHPDtype(operand.dtype))));
  }
  for (const auto& argument : event.arguments) {
    arguments.append(torch::jit::toPyObject(argument));
  }
  return py::make_tuple(
      event.operation,
      ctx::name_of(event.route),
      event.reason,
      event.implementation,
      py::tuple(shapes),
      py::tuple(strides),
      py::tuple(dtypes),
      event.milliseconds,
      event.start,
      event.thread,
      event.overhead,
      event.flops,
      event.bytes,
      py::tuple(arguments));
}

} // namespace

PYBIND11_MODULE(_C, m) {
  m.doc() = "Bindings of libtorch_zendnn; use torch.backends.zendnn instead.";
  m.attr("_has_zendnn") = true;
  m.attr("_least_released_bytes") = ctx::plan::kLeastReleasedBytes;

  m.def("_get_zendnn_enabled", &ctx::enabled);
  m.def("_set_zendnn_enabled", &ctx::set_enabled);
  m.def("_get_zendnn_deterministic", &ctx::deterministic);
  m.def("_set_zendnn_deterministic", &ctx::set_deterministic);

  m.def("_version", &ctx::version, "ZenDNN's version, as in '3.7.2'.");
  m.def("_build_info", &ctx::build_info, "What the binary was built from.");
  m.def("_cpu", cpu, "The CPU, and what of it is used.");
  m.def("_dtypes", dtypes, "The dtypes computed in, and their bytes.");
  m.def(
      "_multiplies_bfloat16",
      [] { return ctx::uses(ctx::Isa::avx512_bf16); },
      "Whether the CPU has instructions for products of bfloat16.");
  m.def(
      "_tuning_budget",
      torch::wrap_pybind_function(ctx::plan::tuning_budget),
      "Seconds for timing implementations, for each build of a plan.");
  m.def(
      "_has_one_default_eps",
      &ctx::cpu::has_one_default_eps,
      "Whether torch's RMS norms of bfloat16 add float32's eps, too.");
  m.def("_blas_kernels", &ctx::blas_kernels, "BLIS's kernel set on this CPU.");
  m.def(
      "_counters",
      &ctx::counters,
      "Primitives run so far, by kind; kinds that have not run are left out.");
  m.def("_reset_counters", &ctx::reset_counters);
  m.def(
      "_overrides",
      &ctx::cpu::override_names,
      "The names of torch's operators whose CPU kernel is ours.");
  m.def(
      "_nanoseconds_of_asking",
      &ctx::cpu::nanoseconds_of_asking,
      "What events and routes cost an operator where nobody uses them.",
      "operators"_a);

  py::class_<ctx::Recording>(m, "_Recording")
      .def(py::init<bool, bool>(), "ranges"_a = false, "arguments"_a = false)
      .def(
          "take",
          [](ctx::Recording& recording) {
            py::list taken;
            for (const auto& event : recording.take()) {
              taken.append(as_fields(event));
            }
            return taken;
          },
          "The fields of each event since the last call.")
      .def("stop", &ctx::Recording::stop);
  m.def(
      "_spent_listening",
      [] {
        return std::pair(
            at::RecordFunction::currentThreadId(), ctx::spent_listening());
      },
      "This thread's number, and the milliseconds spent in it for listeners.");
  m.def(
      "_set_recorded",
      &ctx::set_recorded,
      "Whether recordings hear this thread from now on; return the last value.",
      py::arg("recorded"));

  py::class_<ctx::route::Rule>(m, "_Rule")
      .def(
          py::init([](std::vector<std::string> operators,
                      std::vector<std::optional<ctx::route::Pattern>> shapes,
                      bool offload) {
            return ctx::route::Rule{
                std::move(operators), std::move(shapes), offload};
          }),
          "operators"_a,
          "shapes"_a,
          "offload"_a);
  m.def(
      "_set_route",
      [](std::vector<ctx::route::Rule> rules,
         std::vector<ctx::route::Rule> chart,
         bool otherwise) {
        ctx::route::set(
            ctx::route::Table{std::move(rules), std::move(chart), otherwise});
      },
      "Set which calls run on torch's kernels; a negative size is any.",
      "rules"_a,
      "chart"_a,
      "otherwise"_a);
  m.def("_clear_route", [] { ctx::route::set(std::nullopt); });
  m.def("_restart_route", &ctx::route::restart);

  using Released = py::call_guard<py::gil_scoped_release>;
  m.def("_memory_cached", &ctx::memory_cached);
  m.def("_memory_cache_limit", &ctx::memory_cache_limit);
  m.def("_set_memory_cache_limit", &ctx::set_memory_cache_limit, Released());
  m.def("_empty_cache", &ctx::empty_cache, Released());
  m.def("_packed_memory", &ctx::plan::packed_memory);

  m.def(
      "_set_graph",
      &set_graph,
      "Give a method of a ScriptModule another graph, to be run from now on.",
      py::arg("module"),
      py::arg("method"),
      py::arg("graph"));

  m.def(
      "_prepacked_linear",
      torch::wrap_pybind_function_no_gil(ctx::prepacked_linear));

  ctx::bind_compiled(m);

  auto verbose = m.def_submodule("_verbose");
  verbose.def("zendnn_set_verbose", &ctx::set_verbose);

  m.def(
      "_log_levels",
      torch::wrap_pybind_function([] {
        ctx::tell_early_warnings();
        const auto levels = ctx::read_log_levels();
        return std::pair(levels.messages, levels.lines);
      }),
      "How much the environment lets messages and verbose lines tell, from 0 "
      "to 4.");
  m.def(
      "_word",
      torch::wrap_pybind_function(ctx::word_from),
      "One of some words, of which the first is the default, from the "
      "environment.",
      py::arg("name"),
      py::arg("words"));
  m.def(
      "_number",
      torch::wrap_pybind_function(ctx::number_from),
      "A number from the environment.",
      py::arg("name"),
      py::arg("otherwise"));
  m.def(
      "_whole_number",
      torch::wrap_pybind_function(ctx::whole_number_from),
      "A whole number from the environment.",
      py::arg("name"),
      py::arg("otherwise"));
  m.def(
      "warn_of",
      torch::wrap_pybind_function(ctx::warn_of),
      "Warn once of a variable's value; the rest says what is wrong with it.",
      py::arg("name"),
      py::arg("rest"));

  m.def(
      "_lay_out",
      lay_out,
      "The offsets of (bytes, first step, last step), and the arena's bytes.");
  m.def(
      "_cut_of_panels",
      &ctx::cut_of_panels,
      "Threads, chunks of rows, panels and bands of a product with packed "
      "weights.",
      "rows"_a,
      "columns"_a,
      "depth"_a);
  m.def("_plan_cache_capacity", &ctx::plan::plan_cache_capacity);
  m.def("_set_plan_cache_capacity", &ctx::plan::set_plan_cache_capacity);
  m.def("_forget_tuning", &ctx::plan::forget_choices);
  m.def(
      "_thresholds",
      &ctx::thresholds,
      "The sizes at which another implementation takes over, by name.");
  m.def(
      "_set_threshold",
      torch::wrap_pybind_function(ctx::set_threshold),
      "Set such a size, for problems and plans to come.",
      "name"_a,
      "value"_a);
  m.def(
      "_choose",
      torch::wrap_pybind_function(choose),
      "The index of the fastest right candidate and the names of the wrong "
      "ones. A candidate is a name and a function that computes numbers.",
      py::arg("key"),
      py::arg("candidates"),
      py::arg("judge"));
}
