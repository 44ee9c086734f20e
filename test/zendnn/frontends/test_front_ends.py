"""Only front ends know where graphs come from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.backends.zendnn
from torch.backends.zendnn.frontends import front_end_of

PACKAGE = Path(torch.backends.zendnn.__file__).parent


def test_only_front_ends_name_torchscript() -> None:
    inside = PACKAGE / "frontends"
    files = [path for path in PACKAGE.rglob("*.py") if path.parent != inside / "torchscript"]
    files.remove(inside / "__init__.py")
    assert len(files) > 20
    named = [path.name for path in files if "torchscript" in path.read_text().lower()]
    assert not named


def test_an_unknown_kind_of_model_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"ScriptModule.*not an object of type int$"):
        front_end_of(3)
