"""Architectures of transformers and torchvision against stock torch: `python -m tools.zoo --help`.

tiny.py      what a model is here
models.py    tiny random models of transformers, and of all by name
vision.py    random models of torchvision on small images
inputs.py    inputs for transformers' models
check.py     one model on each way to run it; the process that does so
__main__.py  the command: runs the processes, prints and writes the table
"""
