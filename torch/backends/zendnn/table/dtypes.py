"""The one table of dtypes: torch's, and what the engine does with each. It imports no torch.

The build generates the C++ rows from it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Arithmetic:
    """How the engine computes in a dtype. Sums are float32 in all of them.

    Attributes:
        primitive: ZenDNN's data type.
        needs: instruction sets of which primitives need one; our kernels do not.
        rounding: by how much it may part two results, relative to them.
    """

    primitive: str
    needs: tuple[str, str]
    rounding: float


@dataclass(frozen=True)
class Dtype:
    """A row of the table.

    Attributes:
        name: torch's, in descriptions of plans, too.
        number: torch's own, of its ``ScalarType``.
        scalar: that type's enumerator in C++.
        kind: 'float', 'integer' (which bool is, too) or 'complex'.
        kernel: the type of its elements in our kernels, which convert all that have one; empty
            where they do not take it.
        tolerance: how far a region's results may differ, as a share of the largest; 0.0 without
            ``kernel``.
        is_made: whether plans make tensors of it, and not only convert to it.
        arithmetic: None where only operators of indices, conditions and integers take it, or none.
    """

    name: str
    number: int
    scalar: str
    kind: str
    kernel: str = ""
    tolerance: float = 0.0
    is_made: bool = False
    arithmetic: Arithmetic | None = None


_FLOAT32 = Arithmetic("f32", ("none", "none"), rounding=0.0)
_BFLOAT16 = Arithmetic("bf16", ("avx2_bf16", "avx512"), rounding=2.0**-7)

#: Every dtype that torch's programs may state, by name.
DTYPES = {
    row.name: row
    for row in (
        Dtype("uint8", 0, "Byte", "integer"),
        Dtype("int8", 1, "Char", "integer"),
        Dtype("int16", 2, "Short", "integer"),
        Dtype("int32", 3, "Int", "integer"),
        Dtype("int64", 4, "Long", "integer", is_made=True),
        Dtype("float16", 5, "Half", "float", "Half", 5e-3),
        Dtype("float32", 6, "Float", "float", "float", 1e-4, is_made=True, arithmetic=_FLOAT32),
        Dtype("float64", 7, "Double", "float"),
        Dtype("complex64", 9, "ComplexFloat", "complex"),
        Dtype("complex128", 10, "ComplexDouble", "complex"),
        Dtype("bool", 11, "Bool", "integer", is_made=True),
        Dtype(
            "bfloat16",
            15,
            "BFloat16",
            "float",
            "BFloat16",
            5e-2,
            is_made=True,
            arithmetic=_BFLOAT16,
        ),
    )
}


def of_kind(kind: str) -> frozenset[str]:
    """Return the names of all dtypes of a kind."""
    return frozenset(name for name, row in DTYPES.items() if row.kind == kind)


#: All of them, by torch's own numbers.
NAMES = {row.number: name for name, row in DTYPES.items()}
#: Those that kernels convert.
CONVERTED = tuple(name for name, row in DTYPES.items() if row.kernel)
#: Those that the engine computes in.
COMPUTED = tuple(name for name, row in DTYPES.items() if row.arithmetic is not None)
#: Those that plans make, by torch's own numbers.
MADE = {row.number: name for name, row in DTYPES.items() if row.is_made}
#: The same, and those that plans only convert to.
RETURNED = MADE | {DTYPES[name].number: name for name in CONVERTED}
