"""Graphs whose dicts detect iteration without the lock, during which another thread could change them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.journal import Postbox


class _Guarded(dict[Any, Any]):
    """The blocks or sources of one graph. Looking up a single entry needs no lock."""

    graph: Graph

    def _require_lock(self) -> None:
        assert self.graph.journal.lock._is_owned(), "a description was iterated over without its lock"

    def __iter__(self) -> Iterator[Any]:
        self._require_lock()
        return super().__iter__()

    def keys(self) -> Any:
        self._require_lock()
        return super().keys()

    def values(self) -> Any:
        self._require_lock()
        return super().values()

    def items(self) -> Any:
        self._require_lock()
        return super().items()


@contextmanager
def guarded_descriptions() -> Iterator[None]:
    """Graphs that are created meanwhile raise an AssertionError when they are iterated over without the lock."""
    start = Graph.__init__

    def start_guarded(self: Graph, *arguments: Any) -> None:
        blocks, sources = _Guarded(), _Guarded()
        blocks.graph = sources.graph = self
        start(self, *arguments)
        self.blocks, self.sources = blocks, sources
        self._postbox = Postbox(sources, self._set_posted, self)

    with mock.patch.object(Graph, "__init__", start_guarded):
        yield
