"""Propagates source locations through passes.

Nodes of closed functions are shared, so a node cannot store the line of one function. A pass that works inside
`propagating_lines` sees the lines of its input functions, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, update_wrapper, wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from livegrad.ir.node import Function, Module, Node
from livegrad.ir.source_lines import LocationTable, ambient
from livegrad.ir.walk import functions_in, nodes_of, reachable_functions
from livegrad.state import Owned

_P = ParamSpec("_P")
_Subject = TypeVar("_Subject", Function, Module)
_Result = TypeVar("_Result")


class propagating_lines:
    """Inside, nodes derived from these functions inherit their source locations; `keep` stores them in a new function.

    Work in several steps enters the same object repeatedly; between steps it has no effect.
    """

    __slots__ = ("_before", "_functions", "_is_unset", "_origins", "_table")

    def __init__(self, functions: Iterable[Function]) -> None:
        self._functions = functions
        self._table: LocationTable | None = None

    def __enter__(self) -> propagating_lines:
        self._before, self._origins, self._is_unset = ambient.table, ambient.origins, ambient.is_unset
        table = self._before
        if table is None:
            table = self._table = LocationTable() if self._table is None else self._table
        pending = [function for function in self._functions if function not in table.functions]
        while pending:  # callers first: their locations take precedence
            function = pending.pop()
            table.functions.add(function)
            stored = function.source_locations
            for node in nodes_of(function):
                if node not in table:
                    locations = node.local_origins if node.located else stored.get(node, node.local_origins)
                    if locations:
                        table[node] = locations
            pending += [used for used in functions_in(function) if used not in table.functions]
        # Last: after an error above, `__exit__` would not restore the previous state.
        ambient.table, ambient.is_unset = table, False
        if self._origins is None:
            ambient.origins = ()  # nodes that passes create have no source line
        return self

    def keep(self, function: Function) -> Function:
        """Stores the source locations of all nodes of a function and of the functions inside it."""
        if self._before is None:  # otherwise the enclosing pass stores them
            for inner in reachable_functions([function]):
                self._keep_nodes(function, inner)
        return function

    def keep_outer(self, function: Function) -> Function:
        """Stores the source locations of a function's own nodes, but not those of inner functions."""
        self._keep_nodes(function, function)
        return function

    def _keep_nodes(self, function: Function, inner: Function) -> None:
        table = ambient.table
        assert table is not None
        function.source_locations.update({node: table[node] for node in nodes_of(inner) if node in table})

    def keep_rewritten(self, function: Function, rewritten: Mapping[Node, Node]) -> None:
        """Like `keep`, for a function whose nodes were rewritten from other nodes."""
        table = ambient.table
        assert table is not None
        for old, new in rewritten.items():
            if old is new and old.local_origins:
                table.setdefault(new, old.local_origins)
        if self._before is not None:
            return
        function.source_locations.update(table)
        for node in rewritten.values():
            for inner in node.functions:
                for inner_node, locations in inner.source_locations.items():
                    function.source_locations.setdefault(inner_node, locations)

    def __exit__(self, *exception: object) -> None:
        ambient.table, ambient.origins, ambient.is_unset = self._before, self._origins, self._is_unset


def propagates_lines(
    transform: Callable[Concatenate[_Subject, _P], _Result],
) -> Callable[Concatenate[_Subject, _P], _Result]:
    """Decorates a pass over a function or module so that its output gets the source locations of its input."""

    @wraps(transform)
    def run_pass(subject: _Subject, /, *arguments: _P.args, **named: _P.kwargs) -> _Result:
        table = ambient.table
        if table is not None and ambient.origins is not None and table.functions.issuperset(_functions_in(subject)):
            return transform(subject, *arguments, **named)  # the enclosing pass does all of this
        with propagating_lines(_functions_in(subject)) as lines:
            result = transform(subject, *arguments, **named)
            for function in _functions_in(result):
                lines.keep(function)
        return result

    return run_pass


# The caches of the session, one for each `CachedDerivation`.
derivations: Owned[dict[CachedDerivation[Any, Any], Callable[..., Any]]] = Owned(dict)


def forget_derivations() -> None:
    """Clears the caches of all functions decorated with `cached_derivation`."""
    derivations.current.clear()


class CachedDerivation(Generic[_P, _Result]):
    """A function that `cached_derivation` caches."""

    def __init__(self, transform: Callable[Concatenate[Function, _P], _Result], maxsize: int) -> None:
        update_wrapper(self, transform)
        self._transform, self._maxsize = transform, maxsize

    def __call__(self, function: Function, /, *arguments: _P.args, **named: _P.kwargs) -> _Result:
        if not ambient.every_line:
            derive = derivations.current.get(self)
            if derive is None:
                derive = derivations.current.setdefault(self, lru_cache(self._maxsize)(self._transform))
            return derive(function, *arguments, **named)
        derived = {} if ambient.table is None else ambient.table.derived
        key = (self, function, arguments, tuple(named.items()))
        if key not in derived:
            derived[key] = self._transform(function, *arguments, **named)
        return derived[key]


def cached_derivation(
    maxsize: int,
) -> Callable[[Callable[Concatenate[Function, _P], _Result]], CachedDerivation[_P, _Result]]:
    """`lru_cache` for functions derived from a function.

    A cache entry may have the source lines of another, equal function. Inside `distinguish_lines`, results are
    therefore cached only in the current location table.
    """
    return lambda transform: CachedDerivation(transform, maxsize)


def _functions_in(result: Any) -> tuple[Function, ...]:
    if isinstance(result, Function):
        return (result,)
    if isinstance(result, Module):
        return result.functions
    return tuple(item for item in result if isinstance(item, Function)) if isinstance(result, tuple) else ()
