"""tools/variables.py: the table of environment variables follows the sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import variables
from tools.setup_helpers.errors import SetupError
from tools.setup_helpers.wheel import version

REPO = Path(__file__).parents[2]


def test_the_document_has_the_current_table(tmp_path: Path) -> None:
    document = REPO / "docs/variables.md"
    copy = tmp_path / "variables.md"
    copy.write_text(document.read_text())
    assert variables.main(["--document", str(copy)]) == 0
    assert copy.read_text() == document.read_text()


def numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def test_each_variable_has_been_read_since_a_version_of_this_project() -> None:
    for name, variable in {**variables.VARIABLES, **variables.FOREIGN}.items():
        assert numbers(variable.since) <= numbers(version()), name


def test_values_and_defaults_are_those_of_the_sources() -> None:
    found = variables.read_by("""
        word_from("ZENDNN_A", {"any", "one"}) == "one";
        number_from("ZENDNN_B", 2.5);
        whole_number_from("ZENDNN_C", 0, 32);
        whole_number_from(
            "ZENDNN_D", 0, static_cast<int64_t>(memory() / 8));
        const char* text = std::getenv("ZENDNN_E");
        verify = os.environ.get("ZENDNN_A") == "one"
        os.environ["ZENDNN_F"]
        "ZENDNN_UNREAD"
    """)
    assert found == {
        "ZENDNN_A": ("`any`, `one`", "`any`"),
        "ZENDNN_B": ("a number from 0 on", "`2.5`"),
        "ZENDNN_C": ("a whole number from 0 on", "`32`"),
        "ZENDNN_D": ("a whole number from 0 on", ""),
        "ZENDNN_E": ("", ""),
        "ZENDNN_F": ("", ""),
    }


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda found: found.update(ZENDNN_A=("", "")), "ZENDNN_A is read but has no meaning"),
        (lambda found: found.pop("ZENDNN_VERIFY"), "ZENDNN_VERIFY has a meaning but is not read"),
    ],
)
def test_a_variable_that_only_one_side_knows_is_refused(change: object, sentence: str) -> None:
    found = dict.fromkeys(variables.VARIABLES, ("", ""))
    assert callable(change)
    change(found)
    with pytest.raises(SetupError, match=sentence):
        list(variables.rows(found))
