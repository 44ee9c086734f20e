"""``python -m torch.backends.zendnn doctor``: what is wrong here, what it costs, what mends it.

Checks are functions from values to findings, in tables: ``machine`` has those of a machine and a
process (``facts``, ``limits``), ``model`` those of a model (``observe``, ``trials``), ``log`` those
of a verbose log. ``report`` writes what they found.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    from torch.backends.zendnn.doctor import command  # slow

    return command.main(arguments)
