"""Loop passes: from a kernel step to a loop nest, which says what runs in parallel, in lanes, unrolled or in tiles."""
