"""The one exception that a user of the build ever sees."""

from __future__ import annotations

import sys
from collections.abc import Callable


class SetupError(Exception):
    """Something the user can act on: one sentence saying what failed, where and what to do."""


def exit_code_of(action: Callable[[], int | None], *, resumes: bool = True) -> int:
    """Run `action` and return its process exit code; 2 for a SetupError, 130 when interrupted.

    A SetupError and an interruption are reported on stderr in one line, without a traceback.
    `resumes` says whether the same command, run again, goes on from where it was interrupted.
    """
    try:
        return action() or 0
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        rest = "; run the same command again to go on from here" if resumes else ""
        print(f"interrupted{rest}", file=sys.stderr)
        return 130
