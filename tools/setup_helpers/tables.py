"""Generates C++, CMake's lists and tables of documents from ``torch/backends/zendnn/table``.

Run as a module with a folder, as in the build, this writes C++ and CMake's lists into it. With
``--document FILE`` it replaces the tables of a document, between their marker lines.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import re
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tools.setup_helpers.files import write_atomic

REPO = Path(__file__).resolve().parents[2]
PACKAGE = "torch.backends.zendnn"

NOTE = "// Generated from torch/backends/zendnn/table.\n"

_TABLES = (
    "dtypes",
    "functions",
    "instruction_sets",
    "kernels",
    "operators",
    "settings",
    "thresholds",
)

_CPP_TYPES = {
    "bool": "bool",
    "int": "int64_t",
    "float": "double",
    "int[]": "std::vector<int64_t>",
    "dtype": "std::optional<c10::ScalarType>",
}
#: The types without a JSON literal: each has one default, in Python as in C++.
_EMPTY: dict[str, Any] = {"int[]": (), "dtype": ""}


def load(repo: Path = REPO) -> Any:
    """Return the tables without importing torch, which need not be installed.

    Call it in a separate process, since it replaces torch's packages by stand-ins.
    """
    for name in ("torch", "torch.backends", PACKAGE):
        package = types.ModuleType(name)
        package.__path__ = [str(repo.joinpath(*name.split(".")))]
        sys.modules[name] = package
    names: dict[str, Any] = {}
    for module in _TABLES:
        names |= vars(importlib.import_module(f"{PACKAGE}.table.{module}"))
    return types.SimpleNamespace(**names)


# C++.


def instruction_sets_header(table: Any) -> str:
    """Return the enumerators of instruction sets, and what people read of each."""
    rows = list(table.INSTRUCTION_SETS.values())
    lines = [NOTE + "#pragma once\n", "#include <oneapi/zendnn/zendnn_types.h>\n"]
    lines += ["#include <cstdint>\n", "namespace at::native::zendnn {\n"]
    lines += ["enum class Isa : uint16_t {", "  none = 0,"]
    lines += [f"  {row.name} = zendnn_cpu_isa_{row.primitive}," for row in rows]
    lines += ["};\n", "struct TitledIsa {", "  Isa isa;", "  const char* title;", "};"]
    lines += ["// From the widest on.", "inline constexpr TitledIsa kIsas[] = {"]
    lines += [f'    {{Isa::{row.name}, "{row.title}"}},' for row in reversed(rows)]
    return "\n".join([*lines, "};\n", "} // namespace at::native::zendnn\n"])


def emulated_sets(table: Any) -> str:
    """Return the elements of the array ``kLevels`` (emulation.cpp), from the widest on."""
    lines = [
        f'{{"{row.flag}", zendnn_cpu_isa_{row.primitive}, x64::{row.primitive}}},'
        for row in reversed(table.INSTRUCTION_SETS.values())
        if row.flag
    ]
    return "\n".join([NOTE.rstrip(), *lines]) + "\n"


_DISPATCH = """#include <ATen/native/zendnn/Cpu.h>
#include <ATen/native/zendnn/kernels/types.h>

#include <stdexcept>
#include <string>

namespace at::native::zendnn::kernels {

void refuse(DType dtype) {
  throw std::invalid_argument(
      std::string("a kernel does not take ") +
      kDTypeNames[static_cast<size_t>(dtype)]);
}
"""


def dispatch_source(table: Any) -> str:
    """Return the kernels' functions, each of which calls the best one for this CPU."""
    headers = sorted({row.header for row in table.KERNELS})
    lines = [f"#include <ATen/native/zendnn/kernels/{header}>" for header in headers]
    lines = [NOTE + "\n".join(lines) + "\n", _DISPATCH]
    for row in table.KERNELS:
        taken = f"{row.name}(const {row.args}& args)"
        lines += [f"namespace {isa} {{ {row.result} {taken}; }}" for isa in row.sets]
        lines.append(f"{row.result} {taken} {{")
        narrowest, *wider = row.sets
        for isa in reversed(wider):
            lines.append(f"  if (uses(Isa::{isa})) return {isa}::{row.name}(args);")
        lines.append(f"  return {narrowest}::{row.name}(args);\n}}\n")
    return "\n".join([*lines, "} // namespace at::native::zendnn::kernels\n"])


def kernels_cmake(table: Any) -> str:
    """Return what CMake compiles for each instruction set, and with which options."""
    sources: dict[str, dict[str, None]] = {}
    for row in table.KERNELS:
        for isa in row.sets:
            sources.setdefault(isa, {})[row.source] = None
    lines = [NOTE.replace("//", "#") + f"set(zendnn_kernel_sets {' '.join(sources)})"]
    for isa, files in sources.items():
        options = " ".join(table.INSTRUCTION_SETS[isa].options)
        lines.append(f"set(zendnn_kernel_options_{isa} {options})")
        lines.append(f"set(zendnn_kernel_sources_{isa} {' '.join(files)})")
    return "\n".join(lines) + "\n"


def variables_header(table: Any) -> str:
    """Return what C++ reads environment variables by."""
    lines = [NOTE + "#pragma once\n", "#include <ATen/native/zendnn/Environment.h>\n"]
    lines.append("namespace at::native::zendnn::variables {")
    for row in table.SETTINGS.values():
        if not row.is_foreign:
            name = "k" + "".join(map(str.capitalize, row.name.split("_")[1:]))
            type_, default = _variable(row)
            default = f", {default}" if default else ""
            lines.append(f'inline constexpr {type_} {name}{{"{row.name}"{default}}};')
    return "\n".join([*lines, "} // namespace at::native::zendnn::variables\n"])


def threshold_rows(table: Any) -> str:
    """Return the enumerators of thresholds, and their names and values, which may be changed."""
    lines = [NOTE + "#pragma once\n", "#include <atomic>\n#include <cstdint>"]
    lines += ["#include <string_view>\n\nnamespace at::native::zendnn {\n"]
    lines += [f"enum class Threshold : uint8_t {{ {', '.join(table.THRESHOLDS)} }};\n"]
    lines += ["struct ThresholdRow {", "  std::string_view name;"]
    lines += ["  std::atomic<int64_t> value;", "};"]
    lines += ['__attribute__((visibility("hidden"))) inline constinit ThresholdRow']
    lines += ["    threshold_rows[] = {"]
    lines += [f'        {{"{row.name}", {row.value}}},' for row in table.THRESHOLDS.values()]
    return "\n".join([*lines, "};\n", "} // namespace at::native::zendnn\n"])


def _variable(row: Any) -> tuple[str, str]:
    """Return the C++ type of a variable, and its default."""
    if row.kind == "words":
        return "Words", json.dumps(" ".join(row.words))
    if row.kind == "text":
        return "Text", ""
    if row.number is None:
        return "MachineNumber", ""
    return ("WholeNumber" if row.kind == "whole" else "Number"), str(row.number)


def _computed(table: Any) -> list[Any]:
    return [table.DTYPES[name] for name in table.COMPUTED]


def kernel_dtypes_header(table: Any) -> str:
    """Return the enumerators of the dtypes that kernels may take, and their C++ types."""
    rows = [table.DTYPES[name] for name in table.CONVERTED]
    enumerators = ", ".join(["none", *(row.name for row in rows)])
    names = ", ".join(['"no dtype"', *(f'"{row.name}"' for row in rows)])
    lines = [NOTE + "#pragma once\n", "#include <cstdint>\n"]
    lines += ["namespace at::native::zendnn::kernels {\n"]
    lines += [f"struct {row.kernel};" for row in rows if row.kernel != "float"]
    lines += ["\n// `none`: not set."]
    lines += [f"enum class DType : uint8_t {{ {enumerators} }};"]
    lines += [f"inline constexpr const char* kDTypeNames[] = {{{names}}};\n"]
    lines += ["template <class T>\ninline constexpr DType kTypeOf = DType::none;"]
    for row in rows:
        of = f"inline constexpr DType kTypeOf<{row.kernel}>"
        lines.append(f"template <>\n{of} = DType::{row.name};")
    lines += ["\n// The types of all.", "template <class... Types>\nstruct TypeList {};"]
    lines.append(f"using AllTypes = TypeList<{', '.join(row.kernel for row in rows)}>;")
    return "\n".join([*lines, "\n} // namespace at::native::zendnn::kernels\n"])


def dtype_rows(table: Any) -> str:
    """Return the elements of the array ``kDtypes`` (Dtypes.h)."""
    lines = [NOTE.rstrip()]
    for row in _computed(table):
        how = row.arithmetic
        needs = ", ".join(f"Isa::{name}" for name in how.needs)
        lines.append(
            f'Dtype{{ScalarType::{row.scalar}, "{row.name}", {how.primitive}, {row.name}, '
            f"{{{needs}}}, {_double(how.rounding)}}},"
        )
    return "\n".join(lines) + "\n"


def kernel_dtype_rows(table: Any) -> str:
    """Return the elements of the array ``kKernelDtypes`` (Dtypes.h)."""
    rows = [table.DTYPES[name] for name in table.CONVERTED]
    lines = [
        f"{{ScalarType::{row.scalar}, kernels::DType::{row.name}, {_double(row.tolerance)}}},"
        for row in rows
    ]
    return "\n".join([NOTE.rstrip(), *lines]) + "\n"


def functions_header(table: Any) -> str:
    """Return the enumerators of the kernels' functions and other algorithms."""
    lines = [NOTE + "#pragma once\n", "namespace at::native::zendnn::kernels {\n"]
    for type_, names in table.ENUMERATIONS.items():
        first = ["none"] if type_ == "Eltwise" else []  # the function that is x
        lines.append(f"enum class {type_} {{ {', '.join([*first, *names.values()])} }};")
    return "\n".join([*lines, "\n} // namespace at::native::zendnn::kernels\n"])


def function_cases(table: Any) -> str:
    """Return the cases of a switch that hands the kernels' function of each algorithm to ``f``."""
    rows = [row for row in table.FUNCTIONS.values() if not row.foreign]
    lines = [NOTE.rstrip(), "case Eltwise::none:", "  return f([](Vec x) { return none(x); });"]
    for row in rows:
        template = "<T>" if row.is_typed else ""
        captured, arguments = ("=", "x, a, b") if row.has_parameters else ("", "x")
        call = f"{row.enumerator}{template}({arguments})"
        lines += [f"case Eltwise::{row.enumerator}:"]
        lines += [f"  return f([{captured}](Vec x) {{ return {call}; }});"]
    return "\n".join(lines) + "\n"


def _names(row: Any) -> tuple[str, str]:
    """The functions that infer and build a row; a number needs no build once it is inferred."""
    build = "nothing" if row.result.kind == "number" else row.family
    return f"infer_{row.family}", f"build_{build}"


def _compute(row: Any) -> str:
    """The function that computes a row by torch's operators; empty where a mapping says it."""
    return "" if row.in_torch else f"compute_{row.family}"


def _families(table: Any) -> dict[str, dict[str, Any]]:
    """The attributes of each family's operators."""
    families: dict[str, dict[str, Any]] = {}
    for row in table.OPERATORS.values():
        known = families.setdefault(row.family, {})
        for name, spec in row.attributes.items():
            if known.setdefault(name, spec) != spec:
                raise ValueError(f"the family {row.family} has two attributes '{name}'")
    return {family: specs for family, specs in families.items() if specs}


def _shared_kernels(table: Any) -> dict[str, list[Any]]:
    """The kernels of operators of the same name, by the arguments that several take."""
    taking: dict[str, list[Any]] = {}
    for kernel in table.KERNELS:
        if kernel.name in table.OPERATORS:
            taking.setdefault(kernel.args, []).append(kernel)
    return {args: kernels for args, kernels in taking.items() if len(kernels) > 1}


def _chooser(args: str) -> str:
    """The C++ function that returns the kernel of an operator, of those that take these."""
    words = re.findall(r"[A-Z][a-z]*", args.removesuffix("Args"))
    return f"void (*{'_'.join(map(str.lower, words))}_kernel(Op op))(const kernels::{args}&)"


def kernel_choosers(table: Any) -> str:
    """Return the functions that choose the kernel of an operator's name."""
    shared = _shared_kernels(table)
    headers = sorted({kernel.header for kernels in shared.values() for kernel in kernels})
    lines = [NOTE + "#include <torch/csrc/zendnn/plan/describe/Ops.h>\n"]
    lines += [f"#include <ATen/native/zendnn/kernels/{header}>" for header in headers]
    lines += ["#include <c10/util/Exception.h>\n", "namespace at::native::zendnn {\n"]
    for args, kernels in shared.items():
        names = [kernel.name for kernel in kernels]
        lines += [f"namespace kernels {{ void {name}(const {args}& args); }}" for name in names]
        lines += ["namespace plan {", f"{_chooser(args)} {{", "  switch (op) {"]
        lines += [f"    case Op::{name}: return kernels::{name};" for name in names]
        message = f'"an operator without a kernel that takes {args}"'
        lines += [f"    default: TORCH_INTERNAL_ASSERT(false, {message});", "  }", "}", "}\n"]
    return "\n".join([*lines, "} // namespace at::native::zendnn\n"])


def ops_header(table: Any) -> str:
    """Return the enumerators of operators, the attributes and functions of each family."""
    families = _families(table)
    lines = [NOTE + "#pragma once\n", "#include <ATen/native/zendnn/kernels/functions.h>"]
    lines += ["#include <c10/core/ScalarType.h>\n"]
    includes = ("array", "cstdint", "optional", "string", "string_view", "variant", "vector")
    lines += [f"#include <{name}>" for name in includes]
    lines.append("\nnamespace c10 {\nstruct IValue;\n}\n")
    shared = _shared_kernels(table)
    structs = " ".join(f"struct {args};" for args in shared)
    lines.append(f"namespace at::native::zendnn::kernels {{ {structs} }}\n")
    lines += ["namespace at::native::zendnn::plan {\n", _NAMED]
    for type_, names in table.ENUMERATIONS.items():
        lines += _names_of(f"kernels::{type_}", names)
    lines += _names_of("c10::ScalarType", {x.name: x.scalar for x in table.DTYPES.values()})
    lines += ["\nclass Builder;", "class Values;", "struct Node;", _ARGUMENTS]
    lines.append("enum class Op : uint8_t {")
    lines += [f"  {name}," for name in table.OPERATORS]
    lines.append("};\n")
    rows = table.OPERATORS.values()
    names = dict.fromkeys(name for row in rows for name in (*_names(row), _compute(row)) if name)
    for name in names:
        result, parameters = _SIGNATURES[name.partition("_")[0]]
        lines.append(f"{result} {name}({parameters});")
    lines.append("\n// The kernel of an operator's name, of those that take the same arguments.")
    lines += [f"{_chooser(args)};" for args in shared]
    lines.append("\n// Attributes, by family.\nnamespace attr {")
    for family, specs in families.items():
        lines.append(f"struct {family} {{")
        lines += [_attribute(table, spec) for spec in specs.values()]
        lines.append("  template <typename Self, typename Each>")
        lines.append("  static void each(Self& self, const Each& each) {")
        lines += [f'    each("{name}", self.{name});' for name in specs]
        lines.append("  }\n};")
    names = ", ".join(["std::monostate", *(f"attr::{family}" for family in families)])
    lines += ["} // namespace attr", f"using Attributes = std::variant<{names}>;\n"]
    lines += ["} // namespace at::native::zendnn::plan\n"]
    return "\n".join(lines)


_ARGUMENTS = """
// A node's operands: tensors and numbers, and None for those that are missing.
using Arguments = std::vector<c10::IValue>;
"""

#: The C++ results and parameters of the functions of a family, by their first word.
_SIGNATURES = {
    "infer": ("void", "Values& values, const Node& node"),
    "build": ("void", "Builder& builder, const Node& node"),
    "compute": ("c10::IValue", "const Node& node, const Arguments& arguments"),
}

_NAMED = """// What descriptions call the enumerators of a type; nothing of other types.
template <typename E>
struct Named {
  std::string_view name;
  E value;
};
template <typename E>
inline constexpr std::array<Named<E>, 0> kNamesOf{};"""


def _names_of(type_: str, names: dict[str, str]) -> Iterator[str]:
    yield f"template <>\ninline constexpr auto kNamesOf<{type_}> = std::to_array<Named<{type_}>>({{"
    yield from (f'    {{"{name}", {type_}::{value}}},' for name, value in names.items())
    yield "});"


def _attribute(table: Any, spec: Any) -> str:
    if spec.type in table.ENUMERATIONS:
        named = f"kernels::{spec.type}"
        default = table.ENUMERATIONS[spec.type].get(spec.default)
        return f"  {named} {spec.name}{{{f'{named}::{default}' if default else ''}}};"
    if spec.type in _EMPTY and spec.default != _EMPTY[spec.type]:
        raise ValueError(f"the default of '{spec.name}', of type {spec.type}, is not empty")
    # All other JSON literals are valid C++.
    text = "" if spec.type in _EMPTY else json.dumps(spec.default)
    return f"  {_CPP_TYPES[spec.type]} {spec.name}{{{text}}};"


def letters(row: Any) -> str:
    """Return a row's operands as plans check them (``Operator``, plan/describe/Operators.h)."""
    found = ""
    for operand in row.operands:
        letter = "n" if operand.is_number else "t"
        letter = letter.upper() if operand.optional else letter
        # A list of tensors is never empty.
        repeated = letter if operand.many and letter == "t" else ""
        found += repeated + letter + ("*" if operand.many else "")
    return found


def tables_source(table: Any) -> str:
    """Return the tables of operators and of functions."""
    operators = []
    families = _families(table)
    traits = table.Trait
    flagged = (
        traits.POST_OPS,
        traits.CASTS,
        traits.VIEW,
        traits.WRITES,
        traits.KEEPS_GAPS,
        traits.FALLS_BACK,
    )
    for row in table.OPERATORS.values():
        infer, build = _names(row)
        results = "one_or_two" if row.traits & traits.ONE_OR_TWO else row.result.kind
        keys = ", ".join(f'"{name}"' for name in row.attributes)
        stated = ", ".join(f'"{x.name}"' for x in row.attributes.values() if x.default is None)
        defaults = f"attr::{row.family}{{}}" if row.family in families else "{}"
        kind = f"::zendnn_{row.primitive}" if row.primitive else "zendnn_undefined_primitive"
        flags = ", ".join(str(bool(row.traits & trait)).lower() for trait in flagged)
        operators.append(
            f'{{"{row.name}", {infer}, {build}, {_compute(row) or _by_name(row)}, '
            f'"{letters(row)}", {{{keys}}}, {{{stated}}}, '
            f"{defaults}, "
            f"Results::{results}, {flags}, Follows::{row.result.strides or 'nothing'}, "
            f"{kind}}},"
        )
    functions = [
        f"{{::zendnn::algorithm::{row.primitive or 'undef'}, {str(row.has_parameters).lower()}, "
        f"{_float(row.alpha or 0.0)}, {_float(row.beta or 0.0)}, {_double(row.magnifies)}, "
        f"{_in_torch(row.mappings, 'const Tensor& x', 'double alpha', 'double beta')}}},"
        for row in table.FUNCTIONS.values()
        if not row.foreign
    ]
    combinations = [
        f"{{::zendnn::algorithm::{row.primitive}, {_double(row.magnifies)}, "
        f"{_in_torch(row.mappings, *_TWO_TENSORS)}}},"
        for row in table.COMBINATIONS.values()
    ]
    pairs = [f"{{{_in_torch(row.mappings, *_TWO_TENSORS)}}}," for row in table.PAIRS.values()]
    return "\n".join(
        [
            NOTE + "#include <torch/csrc/zendnn/plan/describe/Functions.h>",
            "#include <torch/csrc/zendnn/plan/describe/Operators.h>",
            "#include <torch/csrc/zendnn/plan/run/TorchCall.h>\n",
            "#include <ATen/Functions.h>\n",
            "#include <limits>\n",
            "namespace at::native::zendnn::plan {\n",
            "const std::vector<Operator>& operators() {",
            "  static const auto& table = *new const std::vector<Operator>{",
            *(f"      {row}" for row in operators),
            "  };\n  return table;\n}\n",
            *_table("FunctionRow", "Eltwise", ["{},  // none", *functions]),
            *_table("CombinationRow", "Binary", combinations),
            *_table("PairRow", "Pair", pairs),
            "} // namespace at::native::zendnn::plan\n",
        ]
    )


_TWO_TENSORS = ("const Tensor& a", "const Tensor& b")


def _table(type_: str, enumeration: str, rows: Iterable[str]) -> Iterator[str]:
    yield f"const {type_}& row_of(kernels::{enumeration} algorithm) {{"
    yield f"  static constexpr {type_} rows[]{{"
    yield from (f"      {row}" for row in rows)
    yield "  };\n  return rows[static_cast<size_t>(algorithm)];\n}\n"


def _in_torch(mappings: Sequence[Any], *parameters: str) -> str:
    """A function that calls torch's operator of the first mapping, if there is one."""
    if not mappings:
        return "nullptr"
    name = mappings[0].name.removeprefix("aten::").partition(".")[0]
    arguments = ", ".join(x.target or json.dumps(x.literal) for x in mappings[0].arguments)
    taken = ", ".join(f"[[maybe_unused]] {parameter}" for parameter in parameters)
    return f"[]({taken}) {{ return at::{name}({arguments}); }}"


def _by_name(row: Any) -> str:
    """A function that calls the operator of a row's mapping with its arguments by name.

    Raises:
        ValueError: for a mapping that names what the row lacks, or that fixes attributes.
    """
    mapping = row.in_torch
    if mapping.fixed:
        raise ValueError(f"the first mapping of '{row.name}' fixes attributes: state composed=True")
    name, _, overload = mapping.name.partition(".")
    named = {x.name: _value(row, x) for x in mapping.arguments if x.is_stated}
    names = ", ".join(f'"{name}"' for name in named)
    # Never destroyed: a thread may run a plan until the process ends.
    return (
        "[]([[maybe_unused]] const Node& node, const Arguments& arguments) -> c10::IValue { "
        f'static const auto& call = *new const TorchCall("{name}", "{overload}", {{{names}}}); '
        f"return call({{{', '.join(named.values())}}}); }}"
    )


def _value(row: Any, argument: Any) -> str:
    """The value of a mapping's argument, of a node and its operands."""
    if not argument.is_named:
        return json.dumps(argument.literal)
    for place, operand in enumerate(row.operands):
        if operand.name == argument.target:
            kind = "numbers" if operand.is_number else "tensors"
            many = f"{kind}_from(node, arguments, {place})"
            return many if operand.many else f"arguments[{place}]"
    if argument.target not in row.attributes:
        raise ValueError(f"'{row.name}' has no '{argument.target}', which a mapping of it names")
    value = f"node.as<attr::{row.family}>().{argument.target}"
    return value if argument.literal is None else f"none_if_empty({value})"


def _float(number: float) -> str:
    return f"{number!r}F"


def _double(number: float) -> str:
    return repr(number) if math.isfinite(number) else "std::numeric_limits<double>::infinity()"


#: The generated files, by path below the folder.
FILES = {
    "aten/src/ATen/native/zendnn/DtypeRows.inc": dtype_rows,
    "aten/src/ATen/native/zendnn/KernelDtypeRows.inc": kernel_dtype_rows,
    "aten/src/ATen/native/zendnn/InstructionSets.h": instruction_sets_header,
    "aten/src/ATen/native/zendnn/ThresholdRows.h": threshold_rows,
    "aten/src/ATen/native/zendnn/Variables.h": variables_header,
    "aten/src/ATen/native/zendnn/kernels/Dispatch.cpp": dispatch_source,
    "aten/src/ATen/native/zendnn/kernels/dtypes.h": kernel_dtypes_header,
    "aten/src/ATen/native/zendnn/kernels/function_cases.inc": function_cases,
    "aten/src/ATen/native/zendnn/kernels/functions.h": functions_header,
    "kernels.cmake": kernels_cmake,
    "third_party/zendnn/levels.inc": emulated_sets,
    "torch/csrc/zendnn/plan/describe/Ops.h": ops_header,
    "torch/csrc/zendnn/plan/describe/KernelChoosers.cpp": kernel_choosers,
    "torch/csrc/zendnn/plan/describe/OperatorTables.cpp": tables_source,
}


def write(table: Any, folder: Path) -> None:
    """Write the C++ tables; an unchanged file keeps its timestamp."""
    for path, make in FILES.items():
        target, text = folder / path, make(table)
        if not target.exists() or target.read_text() != text:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(target, text.encode())


# The documentation.


def document(table: Any, text: str) -> str:
    """Return a document with its tables regenerated.

    Each is between ``<!-- table: NAME -->`` and ``<!-- end -->``, where NAME names a table or a
    part of one.
    """

    def replaced(match: re.Match[str]) -> str:
        lines = _ROWS.get(match[1], partial(_operator_rows, table))(getattr(table, match[1]))
        return f"<!-- table: {match[1]} -->\n" + "\n".join(lines) + "\n<!-- end -->"

    return re.sub(r"<!-- table: (\w+) -->.*?<!-- end -->", replaced, text, flags=re.DOTALL)


def _setting_rows(rows: dict[str, Any]) -> Iterator[str]:
    yield "| variable | values | default | meaning | since |"
    yield "| --- | --- | --- | --- | --- |"
    kinds = {"number": "a number from 0 on", "whole": "a whole number from 0 on"}
    for row in rows.values():
        values = row.values or kinds.get(row.kind) or ", ".join(f"`{word}`" for word in row.words)
        default = row.default or f"`{row.words[0] if row.words else row.number}`"
        yield f"| `{row.name}` | {values} | {default} | {row.meaning} | {row.since} |"


def _operator_rows(table: Any, rows: Iterable[Any]) -> Iterator[str]:
    yield "| operator | attributes | meaning |"
    yield "| --- | --- | --- |"
    for row in rows:
        more = ["…"] if row.traits & table.Trait.POST_OPS else []
        operands = ", ".join([*map(_operand, row.operands), *more])
        keys = " ".join(map(_key, row.attributes.values()))
        yield f"| `{row.name}({operands})` | {keys} | {row.doc} |".replace("  ", " ")


def _operand(operand: Any) -> str:
    type_ = "" if operand.type == "Tensor" else f"{operand.type} "
    return f"{type_}{operand.name}{'…' if operand.many else ''}{'?' if operand.optional else ''}"


def _key(spec: Any) -> str:
    """An attribute with its default, or alone if it must be stated."""
    return f"`{spec.name}`" if spec.default is None else f"`{spec.name}={_default(spec.default)}`"


def _default(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(int(value)) if isinstance(value, bool) else str(value)


def _function_rows(rows: dict[str, Any]) -> Iterator[str]:
    yield "| function | alpha, beta | use |"
    yield "| --- | --- | --- |"
    for row in rows.values():
        parameters = f" {row.doc} " if row.doc else " "
        use = "" if row.primitive else "`eltwise` only "
        yield f"| `{row.name}` |{parameters}| {'none: passes match it ' if row.foreign else use}|"


#: What writes the rows of a document's table; those of other names list operators.
_ROWS = {"FUNCTIONS": _function_rows, "SETTINGS": _setting_rows}


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="folder for C++ and CMake's lists")
    parser.add_argument("--document", type=Path, help="document whose tables to replace")
    options = parser.parse_args(arguments)
    table = load()
    if options.folder:
        write(table, options.folder)
    if options.document:
        text = document(table, options.document.read_text())
        write_atomic(options.document, text.encode())


if __name__ == "__main__":
    main()
