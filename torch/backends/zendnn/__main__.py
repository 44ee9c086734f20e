"""``python -m torch.backends.zendnn`` prints a report that is fit for a bug report."""

from torch.backends.zendnn._info import report

if __name__ == "__main__":
    print(report())
