"""Loop passes: turn a kernel step into a loop nest, with parallel, vectorised, unrolled and tiled loops."""
