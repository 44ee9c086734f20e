"""What tests share: makers of inputs and models, tables of samples, and checks."""
