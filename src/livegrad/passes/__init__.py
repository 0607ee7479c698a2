"""Value passes: transformations from value IR to value IR."""
