"""Parts: bodies defined by functions of position. Shapes, evaluation, pruning, rendering and slicing."""
