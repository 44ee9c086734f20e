"""The only exception that a user of the build sees."""

from __future__ import annotations

import sys
from collections.abc import Callable


class SetupError(Exception):
    """An error that the user can fix; the message is one sentence: what, where, how to fix it."""


def exit_code_of(action: Callable[[], int | None], *, resumes: bool = True) -> int:
    """Run `action` and return its process exit code; 2 for a SetupError, 130 when interrupted.

    A SetupError or an interruption prints one line on stderr, without a traceback.
    `resumes` says whether the same command, run again, resumes where it was interrupted.
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
