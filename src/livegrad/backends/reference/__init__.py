"""The reference backend: NumPy evaluation of the value IR. Slow, obvious, and the truth for every test."""

from livegrad.backends.reference.evaluate import apply_node, evaluate

__all__ = ["apply_node", "evaluate"]
