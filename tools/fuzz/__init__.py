"""Random models against stock torch: `python -m tools.fuzz --help`.

model.py      what a model is: nodes, weights and inputs, as data that becomes Python source
operators.py  the table of operators, NNSmith's own and those that it lacks
generate.py   a model from a seed, by NNSmith
check.py      the front ends, and the oracle; alone in its folder, since finds carry a copy
worker.py     a process that checks models, and its handle, which outlives crashes
shrink.py     the smallest model that still fails
__main__.py   the command: schedules, saves finds and sums up
"""
