"""Loop passes: lower a kernel step to a loop nest with parallel, vectorised, unrolled and tiled loops."""
