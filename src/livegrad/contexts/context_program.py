"""Programs: compiled context graphs, which users evaluate, inspect and print.

`ContextGraph.compile` creates a `Program`. It recompiles itself after an edit, and keeps all results that the edit does
not affect.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from livegrad.contexts.cache.disk import DiskCache
from livegrad.contexts.compose_function import Composed, compose
from livegrad.contexts.context_values import Context
from livegrad.contexts.errors import ContextError
from livegrad.contexts.evaluate import Evaluation
from livegrad.contexts.link import Linked, Unit, link
from livegrad.contexts.observe import EventLog, Reason
from livegrad.contexts.report import CacheReport, make_report
from livegrad.contexts.view import draw_dot, draw_svg, draw_text
from livegrad.diagnostics import caller_origin
from livegrad.ir.node import Function
from livegrad.ops.context import FeatureLevel, parse_feature
from livegrad.state import renew_lock_after_fork

if TYPE_CHECKING:
    from livegrad.contexts.context_graph import ContextGraph


_NO_FAST_PATH = object()


class Program:
    """A graph compiled for one output. Safe to evaluate from several threads; each result is computed once.

    >>> from livegrad.contexts import ContextGraph
    >>> graph = ContextGraph()
    >>> _ = graph.node("clock", lambda ctx: int(ctx.real_time), extract="real_time")
    >>> _ = graph.node("label", lambda ctx, clock: f"{clock} s", plain="clock")
    >>> program = graph.compile("label", root=["real_time", "footprint"])
    >>> with program.events() as log:
    ...     [program.evaluate(real_time=time, footprint=64) for time in (1.2, 1.2, 1.7)]
    ['1 s', '1 s', '1 s']
    >>> print(log)
    computed clock [real_time=1.2]
    computed label [real_time=1.2]
    hit label [real_time=1.2]
    computed clock [real_time=1.7]
    reused label [real_time=1.7]
    >>> print(program.why("clock"))
    `clock` was computed again because of
      feature `real_time`: 1.2 → 1.7
    """

    def __init__(
        self, graph: ContextGraph, output: str, root: tuple[FeatureLevel, ...], disk: DiskCache | None
    ) -> None:
        self._graph, self._output, self._root, self._disk = graph, output, root, disk
        self._store, self._observer = graph.store, graph.observer
        self._lock = threading.Lock()
        renew_lock_after_fork(self, "_lock")
        self._version = -1
        self._current: object = _NO_FAST_PATH  # the compiled program, while `evaluate` may use a cache lookup alone
        self._composed: tuple[Linked, Composed] | None = None
        self._tick = self._store.tick
        self.update()

    def __repr__(self) -> str:
        root = ", ".join(map(str, self._root))
        return f"<program `{self._output}` of {self._graph!r}, given {root or 'no features'}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._graph, self._output, self._root, self._disk)

    def evaluate(self, context: Mapping[str, Any] | None = None, /, **features: Any) -> Any:
        """The output's value in a context: a `Context`, a mapping, or features by name.

        A `Context` is interned once, so using it again does not hash its arrays again.
        """
        if context.__class__ is Context and not features:
            linked, environment, slots = context._bound  # type: ignore[union-attr]
            if linked is self._current:
                slot = slots.get(environment)
                if slot is not None:
                    slot.hits += 1
                    slot.used = self._tick()
                    return slot.interned.value  # type: ignore[union-attr]
        return self._evaluate(context, features)

    def _evaluate(self, context: Mapping[str, Any] | None, features: dict[str, Any]) -> Any:
        if isinstance(context, Context):
            bound_context = context.replace(**features) if features else context
        else:
            bound_context = Context(context, **features)
        linked = self.linked
        environment = bound_context.bind(linked).environment
        with Evaluation(self._store, self._observer, self._disk) as evaluation:
            return evaluation.pull(linked.output, environment).value

    def update(self) -> Linked:
        """Recompiles if the graph was edited, and returns the compiled form. `evaluate` calls it."""
        with self._lock:
            if self._version != self._graph.version:
                version, nodes = self._graph.snapshot()
                linked = link(nodes, self._output, self._root, self._store)
                self._linked, self._version = linked, version
            self._current = self._linked
            # The graph may have been edited in the meantime, and listeners need an event for every hit.
            if self._version != self._graph.version or self._observer.log is not None:
                self._current = _NO_FAST_PATH
            return self._linked

    def leave_fast_path(self) -> None:
        """Leaves the fast path. The graph calls it after an edit, or when a listener is added."""
        self._current = _NO_FAST_PATH

    # --- structure ---------------------------------------------------------------------------------------------------

    @property
    def linked(self) -> Linked:
        """The compiled form: a unit for each node, and the result of the analysis."""
        current = self._current
        return current if isinstance(current, Linked) else self.update()

    def needs(self, node: str | None = None) -> tuple[str, ...]:
        """The features that a node needs (by default, the output), as text."""
        unit = self.linked.output if node is None else self._unit(node)
        return tuple(map(str, unit.need))

    def nullified(self, caller: str | None, node: str) -> tuple[str, ...]:
        """The features that are dropped on the edge from a caller (None: the root) to a node."""
        dropped = [
            feature
            for nullification in self.linked.needs.nullifications
            if (nullification.caller, nullification.source) == (caller, node)
            for feature in nullification.dropped
        ]
        return tuple(dict.fromkeys(map(str, dropped)))

    def __str__(self) -> str:
        return draw_text(self.linked)

    def print(self, *, color: bool = False) -> None:
        """Prints the graph with the inserted nullifications. With `color`, nodes of equal needs have equal colours."""
        print(draw_text(self.linked, color=color))

    def to_dot(self) -> str:
        """The graph for Graphviz: nullifications are nodes, colours distinguish needs."""
        return draw_dot(self.linked)

    def to_svg(self) -> str:
        """The graph as a picture: each node with the features that it needs."""
        return draw_svg(self.linked)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    # --- observation -------------------------------------------------------------------------------------------------

    def events(self) -> AbstractContextManager[EventLog]:
        """`with program.events() as log:` collects the events of evaluations inside the block."""
        return self._observer.listen()

    def why(self, node: str) -> Reason:
        """Why a node was last computed: the feature, input or edit that changed, with its value before and after."""
        return self._observer.why(self._unit(node))

    def report(self) -> CacheReport:
        """For each node, how often it was computed, hit and evicted, and how long it took."""
        return make_report(self.linked, self._store)

    def _unit(self, name: str) -> Unit:
        for unit in self.linked.units:
            if unit.name == name:
                return unit
        raise ContextError(f"`{self._output}` does not need a node `{name}`", where=caller_origin())

    # --- as one function ---------------------------------------------------------------------------------------------

    def to_function(self) -> Function:
        """The program as one livegrad function of its needed features (`needs()`).

        All of its nodes must be livegrad functions.
        """
        return self._compose().function

    def gradient(self, feature: str, context: Mapping[str, Any] | None = None, /, **features: Any) -> Any:
        """The derivative of the output with respect to a feature, for graphs of livegrad functions.

        >>> from livegrad.contexts import ContextGraph, context, context_function
        >>> graph = ContextGraph()
        >>> _ = graph.node("square", context_function(lambda: context("animation_time") * context("animation_time")))
        >>> float(graph.compile("square", root="animation_time").gradient("animation_time", animation_time=3.0))
        6.0
        """
        values = Context(context, **features)
        return self._compose().gradient(parse_feature(feature), values)

    def _compose(self) -> Composed:
        linked = self.linked
        if self._composed is None or self._composed[0] is not linked:
            self._composed = linked, compose(linked)
        return self._composed[1]


def _restore(graph: ContextGraph, output: str, root: tuple[FeatureLevel, ...], disk: DiskCache | None) -> Program:
    """A program that another process has pickled. Programs of one pickle share their graph."""
    return graph.compile(output, root=tuple(map(str, root)), disk=disk)
