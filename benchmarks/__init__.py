"""What ZenDNN gains: ``compare`` times whole models, ``operations`` single operations."""
