"""Makes the declarations and registrations of our kernels from PyTorch's operator table.

Reads only each operator's schema and the kernel it names for each dispatch key from
``native_functions.yaml``. The C++ signature of a kernel follows from the schema.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tools.zendnnify.rewrite import MARK, Renamer
from tools.zendnnify.rules.model import Location, ZendnnifyError

HEADER = "aten/src/ATen/native/zendnn/NativeFunctions.h"
REGISTRATION = "aten/src/ATen/native/zendnn/RegisterZendnn.cpp"

_VOCABULARY = "mkldnn"
_REGISTERED_KEYS = ("MkldnnCPU", "CompositeExplicitAutograd")
_BACKEND_KEY = "PrivateUse1"

# Schema type to C++ parameter type.
_TYPES: dict[str, str] = {
    "Tensor": "const at::Tensor&",
    "Tensor?": "const std::optional<at::Tensor>&",
    "Tensor[]": "at::TensorList",
    "Scalar": "const at::Scalar&",
    "Scalar?": "const std::optional<at::Scalar>&",
    "int": "int64_t",
    "SymInt": "c10::SymInt",
    "int?": "std::optional<int64_t>",
    "float": "double",
    "float?": "std::optional<double>",
    "bool": "bool",
    "bool?": "std::optional<bool>",
    "str": "std::string_view",
    "str?": "std::optional<std::string_view>",
    "ScalarType": "at::ScalarType",
    "ScalarType?": "std::optional<at::ScalarType>",
    "Layout?": "std::optional<at::Layout>",
    "Device?": "std::optional<at::Device>",
    "MemoryFormat?": "std::optional<at::MemoryFormat>",
}
_DEFAULTS: dict[str, str] = {"None": "{}", "[]": "{}", "True": "true", "False": "false"}


@dataclass(frozen=True)
class Argument:
    """One argument of a schema; ``alias`` is the ``a!`` of ``Tensor(a!)``, or empty."""

    type: str
    name: str
    alias: str
    default: str | None


@dataclass(frozen=True)
class Operator:
    """An operator and the kernel that it names for each dispatch key.

    Attributes:
        name: with its overload, as in ``add.Tensor``.
        arguments: in the order of the C++ signature: ``out`` arguments last.
        returns: the schema's text after the arrow.
        kernels: dispatch key to kernel.
        location: of the schema, in the table.
    """

    name: str
    arguments: tuple[Argument, ...]
    returns: tuple[str, ...]
    kernels: tuple[tuple[str, str], ...]
    location: Location

    @property
    def registered(self) -> str | None:
        """The kernel, by upstream's name, whose variant the backend registers."""
        kernels = dict(self.kernels)
        return next((kernels[key] for key in _REGISTERED_KEYS if key in kernels), None)


def parse(text: str, path: str) -> list[Operator]:
    """The operators of a table that name a kernel with the source vocabulary.

    Raises:
        ZendnnifyError: a schema cannot be parsed.
    """
    operators: list[Operator] = []
    for match in re.finditer(r"^- func: (.*)\n((?:(?!- ).*\n)*)", text, re.MULTILINE):
        schema, body = match[1], match[2]
        if _VOCABULARY not in body:
            continue
        kernels = _dispatch(body)
        if not kernels:
            continue
        location = Location(path, text.count("\n", 0, match.start()) + 1, 1)
        operators.append(_operator(schema.split("#")[0].strip(), kernels, location))
    return operators


def _dispatch(body: str) -> tuple[tuple[str, str], ...]:
    """The lines below ``dispatch:`` whose kernel has the vocabulary in its name."""
    section = re.search(r"^  dispatch:\n((?:    .*\n|\s*#.*\n)*)", body, re.MULTILINE)
    pairs: list[tuple[str, str]] = []
    for line in section[1].splitlines() if section else ():
        keys, colon, kernel = line.split("#")[0].partition(":")
        if colon and _VOCABULARY in kernel:
            pairs += [(key.strip(), kernel.strip()) for key in keys.split(",")]
    return tuple(pairs)


def _operator(schema: str, kernels: tuple[tuple[str, str], ...], location: Location) -> Operator:
    match = re.fullmatch(r"([\w.]+)\((.*)\) -> (.*)", schema)
    if match is None:
        raise ZendnnifyError(f"{location}: cannot read the schema {schema!r}")
    arguments: list[Argument] = []
    keyword_only = False
    last: list[Argument] = []
    for text in _split(match[2]):
        if text == "*":
            keyword_only = True
            continue
        argument = _argument(text, location)
        (last if keyword_only and argument.alias.endswith("!") else arguments).append(argument)
    returns = match[3].strip()
    inner = returns[1:-1] if returns.startswith("(") else returns
    return Operator(match[1], (*arguments, *last), tuple(_split(inner)), kernels, location)


def _split(text: str) -> list[str]:
    """Splits at the commas outside of brackets and quotes."""
    parts = re.findall(r"(?:[^,\[(']|\[[^\]]*\]|\([^)]*\)|'[^']*')+", text)
    return [part.strip() for part in parts if part.strip()]


def _argument(text: str, location: Location) -> Argument:
    match = re.fullmatch(
        r"(\w+)(?:\(([\w!|* ->]+)\))?((?:\[\d*\])?\??(?:\[\d*\])?\??) (\w+)(?:=(.*))?", text
    )
    if match is None:
        raise ZendnnifyError(f"{location}: cannot read the argument {text!r}")
    return Argument(match[1] + match[3], match[4], match[2] or "", match[5])


def _parameter_type(argument: Argument, symbolic: bool, location: Location) -> str:
    if argument.alias.endswith("!"):
        return "at::Tensor&"
    text = argument.type
    if not symbolic:
        text = text.replace("SymInt", "int")
    array = re.fullmatch(r"(int|SymInt|bool)\[(\d*)\](\??)", text)
    if array is None:
        try:
            return _TYPES[text]
        except KeyError:
            raise ZendnnifyError(
                f"{location}: no C++ type is known for {argument.type!r}; "
                "add it to tools/zendnnify/kernels.py"
            ) from None
    element, size, optional = array.groups()
    if element == "bool":
        return f"std::array<bool, {size}>"
    kind = "SymInt" if element == "SymInt" else "Int"
    return f"at::Optional{kind}ArrayRef" if optional else f"{_array(kind)}"


def _array(kind: str) -> str:
    return {"Int": "at::IntArrayRef", "SymInt": "c10::SymIntArrayRef"}[kind]


def _default(text: str) -> str:
    if text.startswith("'"):
        return '"' + text[1:-1] + '"'
    return _DEFAULTS.get(text, text)


def _return_type(operator: Operator) -> str:
    kinds = [
        "at::Tensor&" if "!" in item and "[" not in item else "at::Tensor"
        for item in operator.returns
    ]
    # An operator that returns its ``out`` argument returns a reference. One that only updates an
    # argument (running statistics) has no alias mark on its results.
    return kinds[0] if len(kinds) == 1 else f"std::tuple<{', '.join(kinds)}>"


def signature(operator: Operator, kernel: str, name: str) -> str:
    """The C++ declaration of ``kernel`` under its new ``name``, without a semicolon."""
    symbolic = kernel.endswith("_symint")
    # C++ allows no defaults before the ``out`` argument, which has none.
    defaults = not any(argument.alias.endswith("!") for argument in operator.arguments[1:])
    parameters = []
    for argument in operator.arguments:
        kind = _parameter_type(argument, symbolic, operator.location)
        default = ""
        if defaults and argument.default is not None:
            default = f" = {_default(argument.default)}"
        parameters.append(f"{kind} {argument.name}{default}")
    return f"{_return_type(operator)} {name}({', '.join(parameters)})"


def header(
    operators: list[Operator], names: Renamer, source: str, more: tuple[str, ...] = ()
) -> str:
    """A header that declares every kernel once, and ``more``."""
    declared: dict[str, str] = {}
    for operator in operators:
        for _, kernel in operator.kernels:
            name = names.text(kernel, operator.location)
            declared.setdefault(name, signature(operator, kernel, name))
    lines = "\n".join(f"{line};" for line in (*declared.values(), *more))
    return (
        f"// {MARK}{source}; do not edit.\n"
        "// The kernels of the zendnn backend, with the signatures of the operators they serve.\n"
        "#pragma once\n\n"
        "#include <ATen/core/Tensor.h>\n"
        "#include <array>\n#include <optional>\n#include <string_view>\n#include <tuple>\n\n"
        "namespace at::native {\n\n"
        f"{lines}\n\n"
        "}  // namespace at::native\n"
    )


def registration(operators: list[Operator], names: Renamer, source: str) -> str:
    """A source file that registers the kernels under the backend's dispatch key."""
    registered = {
        operator.name: names.text(kernel, operator.location)
        for operator in operators
        if (kernel := operator.registered) is not None
    }
    body = "\n".join(
        f'  m.impl("{name}", TORCH_FN(at::native::{kernel}));'
        for name, kernel in registered.items()
    )
    return (
        f"// {MARK}{source}; do not edit.\n"
        "// Registers the zendnn kernels for the installed torch's operators.\n"
        "#include <ATen/native/zendnn/NativeFunctions.h>\n"
        "#include <torch/library.h>\n\n"
        f"TORCH_LIBRARY_IMPL(aten, {_BACKEND_KEY}, m) {{\n"
        f"{body}\n"
        "}\n"
    )


def tree_header(
    operators: list[Operator], names: Renamer, source: str, more: tuple[str, ...] = ()
) -> str:
    """The header in a whole tree: torchgen declares the registered kernels, this one the others,
    and ``more``."""
    # torchgen's header of add.Tensor, add_.Tensor and add.out is that of add.
    bases = {operator.name.partition(".")[0].removesuffix("_") for operator in operators}
    includes = "\n".join(f"#include <ATen/ops/{base}_native.h>" for base in sorted(bases))
    others = (
        signature(operator, kernel, names.text(kernel, operator.location))
        for operator in operators
        if operator.registered is None
        for _, kernel in operator.kernels
    )
    lines = "\n".join(f"{line};" for line in (*others, *more))
    return (
        f"// {MARK}{source}; do not edit.\n"
        "// The kernels of the zendnn backend.\n"
        "#pragma once\n\n"
        "#include <ATen/core/Tensor.h>\n"
        "#ifndef AT_PER_OPERATOR_HEADERS\n#include <ATen/NativeFunctions.h>\n"
        f"#else\n{includes}\n#endif\n\n"
        "namespace at::native {\n\n"
        f"{lines}\n\n"
        "}  // namespace at::native\n"
    )


def with_entries(text: str, operators: list[Operator], names: Renamer) -> str:
    """The operator table ``text`` with an entry for each kernel that the backend registers, below
    that of upstream's kernel."""
    lines = text.splitlines(keepends=True)
    for operator in reversed(operators):  # From the end, so that earlier lines keep their numbers.
        kernel = operator.registered
        if kernel is None:
            continue
        entry = re.compile(rf"    [\w, ]+: {kernel}\s*(#.*)?\n")
        index = operator.location.line
        while not entry.fullmatch(lines[index]):
            index += 1
        lines.insert(index + 1, f"    {_BACKEND_KEY}: {names.text(kernel, operator.location)}\n")
    return "".join(lines)


def undefined(operators: list[Operator], sources: str) -> list[tuple[Operator, str]]:
    """Kernels, by upstream's names, that the table names but ``sources`` does not define."""
    defined = {
        match[1]
        for match in re.finditer(rf"\b(\w*{_VOCABULARY}\w*)\s*\(", sources)
        if re.compile(r"\s*\{").match(sources, _closing(sources, match.end()))
    }
    return [
        (operator, kernel)
        for operator in operators
        for _, kernel in operator.kernels
        if kernel not in defined
    ]


def _closing(text: str, offset: int) -> int:
    """The offset after the parenthesis that matches the one before ``offset``."""
    depth = 1
    for match in re.compile(r"[()]").finditer(text, offset):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return match.end()
    return len(text)
