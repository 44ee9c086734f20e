"""Measures what ZenDNN gains: ``compare`` times whole models, ``operations`` single operations."""
