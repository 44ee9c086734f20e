"""Options of everything that makes plans: ``torch.compile``, ``optimize`` and ``export``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import torch
from torch.backends.zendnn import _C, passes

Kind = TypeVar("Kind", bound="Options")

#: torch's words for the precision of float32 products.
PRECISIONS = ("highest", "high", "medium")


@dataclass(frozen=True)
class Options:
    """What ``options`` takes.

    Attributes:
        passes: passes to switch on or off, by name (``torch.backends.zendnn.passes``).
        precision: ``"medium"`` lets linear layers of float32 multiply in bfloat16, on CPUs with
            instructions for it; sums and results stay float32. With ``"high"`` and ``"highest"``,
            all is float32. By default what torch is set to, by
            ``torch.set_float32_matmul_precision`` for example, when the options are read.
        emulate_precision_casts: whether plans round to bfloat16 wherever eager mode does, as with
            Inductor's option of this name. Otherwise, steps that join several operators compute in
            float32 and round once. By default what ``ZENDNN_EMULATE_PRECISION_CASTS`` says.
        tune: whether plans time implementations, or for how many seconds each may. By default for
            as many as ``ZENDNN_TUNING_BUDGET`` says. Without, the first one serves, unless an
            earlier choice is known.
    """

    passes: Mapping[str, bool] | None = None
    precision: str | None = None
    emulate_precision_casts: bool | None = None
    tune: bool | float = True

    @classmethod
    def of(cls: type[Kind], values: Mapping[str, Any] | None) -> Kind:
        """Return the options, checked.

        Raises:
            ValueError: for an option, a pass or a word that there is not.
            TypeError: for a value of another type.
        """
        named = dict(values or {})
        known = {spec.name for spec in fields(cls)}
        if unknown := named.keys() - known:
            raise ValueError(
                f"zendnn has no option {min(unknown)!r} here: use some of "
                f"{', '.join(sorted(known))}"
            )
        if named.get("precision") is None:
            named["precision"] = _precision_of_torch()
        if named.get("emulate_precision_casts") is None:
            named["emulate_precision_casts"] = passes.is_enabled("round_as_eager")
        options = cls(**named)
        options.check()
        return options

    def check(self) -> None:
        """Raise ValueError or TypeError for a value that an option does not take."""
        for name, on in (self.passes or {}).items():
            passes.is_enabled(name)
            if not isinstance(on, bool):
                raise TypeError(f"the pass {name!r} is switched by True or False, not {on!r}")
        if self.precision not in PRECISIONS:
            words = ", ".join(map(repr, PRECISIONS))
            raise ValueError(f"the option 'precision' is one of {words}, not {self.precision!r}")
        if not isinstance(self.emulate_precision_casts, bool):
            raise TypeError(
                "the option 'emulate_precision_casts' is True or False, "
                f"not {self.emulate_precision_casts!r}"
            )
        if not (isinstance(self.tune, bool | int | float) and self.tune >= 0):
            raise ValueError(
                f"the option 'tune' is True, False or a number of seconds, not {self.tune!r}"
            )

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Apply the options to what is optimised inside."""
        rounds = self.precision == "medium" and _C._multiplies_bfloat16()
        switched = {"round_products": rounds, "round_as_eager": bool(self.emulate_precision_casts)}
        switched |= self.passes or {}
        budget = None if self.tune is True else float(self.tune)
        with passes.switched(switched), passes.tuned(budget):
            yield


def _precision_of_torch() -> str:
    """Return the word for what torch does with matrix products of float32 on CPUs."""
    of_products = getattr(torch.backends.mkldnn, "matmul", None)
    if of_products is None:  # an older torch
        return torch.get_float32_matmul_precision()
    return "medium" if of_products.fp32_precision == "bf16" else "highest"
