"""The engine's own graph: its nodes, the inference of types, regions, and descriptions of these."""
