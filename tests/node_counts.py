"""How many nodes are alive, for tests of memory: counted when no other thread makes or frees any."""

from livegrad.backends.cpu.improve import improver
from livegrad.ir import node


def live_node_count() -> int:
    """The nodes alive. Kernels of earlier tests that wait for better code hold nodes until they have it."""
    improver.wait()
    return node.live_node_count()
