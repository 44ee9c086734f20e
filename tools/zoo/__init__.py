"""Every architecture of `transformers`, tiny, against stock torch: `python -m tools.zoo --help`.

models.py    a tiny random model of an architecture
inputs.py    inputs for it
check.py     one model on each way to run it; the process that does so
__main__.py  the command: runs the processes, prints and writes the table
"""
