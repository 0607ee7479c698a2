"""`lg.execute`, which computes several tensors together with optional progress, and `lg.clear_caches`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.lazy import execution
from livegrad.lazy.compiled_graphs import forget_programs
from livegrad.runtime.cpu import forget_functions
from livegrad.tensors.differentiated_call import forget_derivatives
from livegrad.tensors.handle import Tensor
from livegrad.tensors.pytrees import flatten

_BAR = 40


def execute(*trees: Any, progress: bool | Callable[[int, int], None] = False) -> Any:
    """Computes all tensors of some pytrees together, so that they share work, and returns them.

    `progress=True` shows a progress bar on the terminal; a function is called with (completed nodes, total nodes).
    Ctrl-C stops the execution; completed values stay cached.

    >>> import livegrad as lg
    >>> x = lg.ones(3)
    >>> total, largest = lg.execute(lg.sum(x), lg.max(x))
    >>> total.is_computed and largest.is_computed
    True
    """
    leaves = [leaf for tree in trees for leaf in flatten(tree)[0]]
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise UsageError("only tensors can be executed", where=caller_origin(), found=type(leaf).__name__)
    execution.execute([leaf.node for leaf in leaves], _show if progress is True else progress or None)
    return trees[0] if len(trees) == 1 else trees


def clear_caches() -> None:
    """Clears all compiled programs and derivatives in memory. Values of tensors and code on disk are kept.

    >>> import livegrad as lg
    >>> lg.clear_caches()
    """
    forget_programs()
    forget_functions()
    forget_derivatives()


def _show(computed: int, total: int) -> None:
    filled = _BAR * computed // max(1, total)
    end = "\n" if computed >= total else ""
    print(
        f"\r[{'#' * filled}{'.' * (_BAR - filled)}] {computed:,} of {total:,} nodes",
        end=end,
        file=sys.stderr,
        flush=True,
    )
