"""``python -m torch.backends.zendnn``: a report that is fit for a bug report, and commands."""

import argparse
import os
import sys

from torch.backends.zendnn import doctor
from torch.backends.zendnn._info import report
from torch.backends.zendnn.observe import replay
from torch.backends.zendnn.place import launch

COMMANDS = {"doctor": doctor.main, "launch": launch.main, "replay": replay.main}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m torch.backends.zendnn",
        description="Print a report for a bug report, or run a command.",
    )
    parser.add_argument("command", nargs="?", choices=COMMANDS, help="see COMMAND --help")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the command")
    options = parser.parse_args()
    if options.command:
        sys.exit(COMMANDS[options.command](options.arguments))
    try:
        print(report(), flush=True)
    except BrokenPipeError:  # The reader, such as `head`, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
