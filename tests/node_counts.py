"""How many nodes are alive, for tests of memory: counted when no other thread makes or frees any."""

import gc

from livegrad.ir.node import live_node_count
from livegrad.runtime.cpu.tier_up import background_compiler


def settled_node_count() -> int:
    """The nodes alive, but for those that are about to go.

    Kernels of earlier tests that wait for better code hold nodes, and making it makes some: first that, then garbage.
    """
    background_compiler.wait()
    while gc.collect():  # what a finalizer lets go of may be garbage in its turn
        continue
    return live_node_count()
