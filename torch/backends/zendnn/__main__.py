"""``python -m torch.backends.zendnn`` prints a report that is fit for a bug report."""

import argparse
import os
import sys

from torch.backends.zendnn._info import report

if __name__ == "__main__":
    name = "python -m torch.backends.zendnn"
    argparse.ArgumentParser(prog=name, description="Print a report for a bug report.").parse_args()
    try:
        print(report(), flush=True)
    except BrokenPipeError:  # The reader, such as `head`, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
