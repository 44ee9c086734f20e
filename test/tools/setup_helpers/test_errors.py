"""tools/setup_helpers/errors.py: how errors end a process."""

from __future__ import annotations

import pytest

from tools.setup_helpers.errors import SetupError, exit_code_of


def test_success_is_0() -> None:
    assert exit_code_of(lambda: None) == 0


def test_a_user_error_is_2_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise SetupError("no cake: bake one")

    assert exit_code_of(fail) == 2
    assert capsys.readouterr().err == "error: no cake: bake one\n"


def test_an_interruption_is_130_and_says_how_to_resume(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    assert exit_code_of(interrupt) == 130
    assert "run the same command again" in capsys.readouterr().err


def test_a_mistake_of_ours_keeps_its_traceback() -> None:
    def slip() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        exit_code_of(slip)


def test_a_command_that_restarts_does_not_say_that_it_resumes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    assert exit_code_of(interrupt, resumes=False) == 130
    assert capsys.readouterr().err == "interrupted\n"
