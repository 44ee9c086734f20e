"""Wheels for shipping: `python -m tools.wheels`. docs/wheels.md shows what a vendor types."""
