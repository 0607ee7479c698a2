"""How many nodes are alive, for tests of memory: counted when no other thread makes or frees any."""

import gc
import time

from livegrad.backends.cpu.improve import improver
from livegrad.ir.node import live_node_count


def settled_node_count() -> int:
    """The nodes alive, but for those about to go, once two counts agree: threads of earlier tests may be ending.

    Kernels of earlier tests that wait for better code hold nodes, and making it makes some: first that, then garbage.
    """
    before, count = -1, _count()
    while count != before:
        time.sleep(0.01)
        before, count = count, _count()
    return count


def _count() -> int:
    improver.wait()
    while gc.collect():  # what a finalizer lets go of may be garbage in its turn
        continue
    return live_node_count()
