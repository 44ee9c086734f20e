"""Where graphs come from: each module here imports one kind of model and emits calls of plans."""
