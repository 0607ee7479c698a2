"""From tensor functions to plans: which work is done together, over which buffers, in which order."""
