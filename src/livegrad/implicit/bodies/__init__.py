"""Parts: bodies given by functions of position; shapes, pictures, slices and pruned evaluation."""
