"""Checks for NaNs: runs graphs node by node and raises at the source line of the first NaN or infinity.

`execution` calls `run_checked` while `watch` is active on its thread; `debug_nans` activates it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from livegrad.diagnostics import KernelCheckError, SourceLocation, caller_origin
from livegrad.ir.bfloat16 import readable
from livegrad.ir.leaves import input_op
from livegrad.ir.node import Node
from livegrad.ir.source_lines import distinguish_lines
from livegrad.ir.types import Scalar, Tensor
from livegrad.lazy.devices import run_by_node
from livegrad.lazy.lazy_values import Array


class _Watch(threading.local):
    """Whether this thread checks values for NaNs, and for infinities too."""

    active, infinities = False, False


watch = _Watch()


@contextmanager
def watching_for_nans(*, infinities: bool) -> Iterator[None]:
    """Runs the graphs inside the context node by node on this thread, and raises at the first NaN."""
    before = watch.active, watch.infinities
    watch.active, watch.infinities = True, infinities
    try:
        with distinguish_lines():
            yield
    finally:
        watch.active, watch.infinities = before


def run_checked(order: list[Node], values: dict[Node, Array], outputs: Sequence[Node]) -> list[Array]:
    """Runs node by node and raises at the first value with elements that this thread rejects."""
    return run_by_node(order, values, outputs, require_numbers)


def _find_rejected(value: Any) -> Any:
    """Returns a mask of the elements that this thread rejects; None if the element type cannot have any."""
    value = readable(np.asarray(value))
    if value.dtype.kind not in "fc":
        return None
    return ~np.isfinite(value) if watch.infinities else np.isnan(value)


def has_wrong_numbers(value: Any) -> bool:
    """Whether an array has a NaN, or an infinity if this thread rejects infinities too."""
    wrong = _find_rejected(value)
    return wrong is not None and bool(np.any(wrong))


def require_numbers(node: Node, value: Any, lines: Sequence[SourceLocation]) -> None:
    """Raises if a value has elements that this thread rejects; `lines` are the source locations of the node."""
    wrong = _find_rejected(value) if isinstance(node.type, Tensor | Scalar) else None
    if wrong is not None and np.any(wrong):
        index = np.unravel_index(int(np.argmax(wrong)), np.shape(value))
        kind = "NaN" if np.any(np.isnan(readable(np.asarray(value)))) else "infinity"
        what = "this data contains" if node.op is input_op else f"`{node.op.name}` produced"
        # More than one line only in a graph that was built before NaN checks were enabled.
        other_locations = ", ".join(map(str, lines[1:]))
        raise KernelCheckError(
            f"{what} the first {kind}, at index {tuple(map(int, index))}",
            where=lines[0] if lines else caller_origin(),
            help=f"the same expression also appears at {other_locations}" if other_locations else None,
        )
