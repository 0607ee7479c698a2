"""How many nodes are alive in the process, for tests of memory. They take a session or a process of their own."""

import gc

from livegrad.ir.node import live_node_count
from livegrad.runtime.cpu.tier_up import background_compiler


def settled_node_count() -> int:
    """The nodes alive, but for garbage and for those of kernels that wait for the optimised tier."""
    background_compiler.current.wait()
    while gc.collect():  # what a finalizer lets go of may be garbage in its turn
        continue
    return live_node_count()
