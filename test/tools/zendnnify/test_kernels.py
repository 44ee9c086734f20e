"""From the operator table to declarations and registrations."""

from __future__ import annotations

import pytest

from tools.zendnnify import kernels
from tools.zendnnify.rewrite import Renamer
from tools.zendnnify.rules.model import ZendnnifyError
from tools.zendnnify.rules.names.vocabulary import GLUED, SPELLINGS

NAMES = Renamer(SPELLINGS, GLUED)


def declare(schema: str, kernel: str = "mkldnn_f", key: str = "MkldnnCPU") -> str:
    table = f"- func: {schema}\n  dispatch:\n    CPU: f\n    {key}: {kernel}\n"
    (operator,) = kernels.parse(table, "table.yaml")
    return kernels.signature(operator, kernel, NAMES.text(kernel, operator.location))


@pytest.mark.parametrize(
    ("schema", "signature"),
    [
        ("f(Tensor self) -> Tensor", "at::Tensor zendnn_f(const at::Tensor& self)"),
        (
            "f_(Tensor(a!) self, Scalar? x=None) -> Tensor(a!)",
            "at::Tensor& zendnn_f(at::Tensor& self, const std::optional<at::Scalar>& x = {})",
        ),
        (
            "f.out(Tensor self, *, int n=1, Tensor(a!) out) -> Tensor(a!)",
            "at::Tensor& zendnn_f(const at::Tensor& self, int64_t n, at::Tensor& out)",
        ),
        (
            "f(Tensor? b, bool[3] mask, float eps=1e-05) -> (Tensor, Tensor)",
            "std::tuple<at::Tensor, at::Tensor> zendnn_f(const std::optional<at::Tensor>& b, "
            "std::array<bool, 3> mask, double eps = 1e-05)",
        ),
        (
            "f(SymInt[2] pad=0, SymInt[]? size=None, str how='none', bool up=False) -> Tensor",
            "at::Tensor zendnn_f(at::IntArrayRef pad = 0, at::OptionalIntArrayRef size = {}, "
            'std::string_view how = "none", bool up = false)',
        ),
        (
            "f(int[2] stride=[], *, ScalarType? dtype=None, Layout? layout=None, "
            "Device? device=None, bool? pin_memory=None) -> Tensor",
            "at::Tensor zendnn_f(at::IntArrayRef stride = {}, "
            "std::optional<at::ScalarType> dtype = {}, std::optional<at::Layout> layout = {}, "
            "std::optional<at::Device> device = {}, std::optional<bool> pin_memory = {})",
        ),
    ],
)
def test_signatures_follow_from_schemas(schema: str, signature: str) -> None:
    assert declare(schema) == signature


def test_a_symint_kernel_takes_symbolic_sizes() -> None:
    assert declare("f(SymInt[] size, SymInt n) -> Tensor", "mkldnn_f_symint") == (
        "at::Tensor zendnn_f_symint(c10::SymIntArrayRef size, c10::SymInt n)"
    )


def test_an_unknown_type_is_an_error_with_its_place() -> None:
    with pytest.raises(ZendnnifyError, match=r"table\.yaml:1:1: no C\+\+ type .* 'Storage'"):
        declare("f(Storage s) -> Tensor")


def test_a_schema_that_cannot_be_read_is_an_error_with_its_place() -> None:
    with pytest.raises(ZendnnifyError, match=r"table\.yaml:1:1: cannot read the schema"):
        declare("f Tensor self")


TABLE = """\
- func: relu(Tensor self) -> Tensor  # NB: a note
  device_check: NoCheck
  dispatch:
    CPU, CUDA: relu
    # a comment
    MkldnnCPU: mkldnn_relu  # and another

- func: mkldnn_pack(Tensor self) -> Tensor
  dispatch:
    CPU: dense_mkldnn_pack
  autogen: mkldnn_pack.out

- func: mkldnn_conv(Tensor self) -> Tensor
  dispatch:
    CompositeExplicitAutograd: mkldnn_conv

- func: other(Tensor self) -> Tensor
  # not for mkldnn
  dispatch:
    CPU: other
"""


def test_only_kernels_with_the_vocabulary_are_read() -> None:
    found = kernels.parse(TABLE, "table.yaml")
    assert [(op.name, op.kernels) for op in found] == [
        ("relu", (("MkldnnCPU", "mkldnn_relu"),)),
        ("mkldnn_pack", (("CPU", "dense_mkldnn_pack"),)),
        ("mkldnn_conv", (("CompositeExplicitAutograd", "mkldnn_conv"),)),
    ]
    assert [op.location.line for op in found] == [1, 8, 13]


def test_every_kernel_is_declared_and_the_backends_are_registered() -> None:
    found = kernels.parse(TABLE, "table.yaml")
    header = kernels.header(found, NAMES, "table.yaml", ("extern int more",))
    for kernel in ("zendnn_relu", "dense_zendnn_pack", "zendnn_conv"):
        assert f"at::Tensor {kernel}(const at::Tensor& self);" in header
    assert "extern int more;" in header
    registration = kernels.registration(found, NAMES, "table.yaml")
    assert 'm.impl("relu", TORCH_FN(at::native::zendnn_relu));' in registration
    assert 'm.impl("mkldnn_conv", TORCH_FN(at::native::zendnn_conv));' in registration
    assert "zendnn_pack" not in registration


def test_kernels_that_nothing_defines_are_found() -> None:
    found = kernels.parse(TABLE, "table.yaml")
    code = "Tensor mkldnn_relu(const Tensor& x) {\n  return dense_mkldnn_pack(x);\n}\n"
    code += "static inline std::tuple<Tensor, Tensor>& mkldnn_conv(\n    int x) {}\n"
    assert [kernel for _, kernel in kernels.undefined(found, code)] == ["dense_mkldnn_pack"]


WHOLE_TREE = """\
- func: f_(Tensor(a!) self) -> Tensor(a!)
  dispatch:
    SparseCPU, MkldnnCPU: mkldnn_f_  # a comment
    CompositeExplicitAutograd: f_

- func: g(Tensor self) -> Tensor
  dispatch:
    CompositeExplicitAutograd: mkldnn_g
  autogen: g.out

- func: h(Tensor self) -> Tensor
  dispatch:
    CPU: dense_to_mkldnn
"""


def test_the_table_of_a_whole_tree_has_an_entry_below_each_registered_kernel() -> None:
    operators = kernels.parse(WHOLE_TREE, "table.yaml")
    added = {
        "    SparseCPU, MkldnnCPU: mkldnn_f_  # a comment\n": "    PrivateUse1: zendnn_f_\n",
        "    CompositeExplicitAutograd: mkldnn_g\n": "    PrivateUse1: zendnn_g\n",
    }
    wanted = WHOLE_TREE
    for line, entry in added.items():
        wanted = wanted.replace(line, line + entry)
    assert kernels.with_entries(WHOLE_TREE, operators, NAMES) == wanted


def test_the_header_of_a_whole_tree_declares_what_torchgen_does_not() -> None:
    operators = kernels.parse(WHOLE_TREE, "table.yaml")
    header = kernels.tree_header(operators, NAMES, "table.yaml", ("extern int more",))
    assert [line for line in header.splitlines() if line.startswith("#include <ATen/ops/")] == [
        f"#include <ATen/ops/{name}_native.h>" for name in ("f", "g", "h")
    ]
    declared = [line for line in header.splitlines() if line.endswith(";")]
    assert declared == [
        "at::Tensor dense_to_zendnn(const at::Tensor& self);",
        "extern int more;",
    ]
