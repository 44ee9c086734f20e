"""Random models against stock torch: `python -m tools.fuzz --help`.

model.py      a model as data (nodes, weights, inputs), and its Python source
operators.py  the table of operators: NNSmith's own, and those that it lacks
functions.py  expressions of the functions in the engine's own table
generate.py   a model from a seed, by NNSmith
writes.py     writes in place, views and states, which NNSmith lacks
check.py      the front ends and the oracle; self-contained, since each find has a copy
worker.py     a process that checks models, and its handle, which survives crashes
shrink.py     the smallest model that still fails
__main__.py   the command: schedules, saves finds, summarises
"""
