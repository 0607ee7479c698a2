"""Propagates source locations through passes.

Nodes of closed functions are shared, so a node cannot store the line of one function. A pass that works inside
`propagating_lines` sees the lines of its input functions, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, update_wrapper, wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from livegrad.ir.node import Function, Module, Node
from livegrad.ir.source_lines import PlaceTable, ambient
from livegrad.ir.walk import functions_in, nodes_of, reachable_functions
from livegrad.state import Owned

_P = ParamSpec("_P")
_Subject = TypeVar("_Subject", Function, Module)
_Made = TypeVar("_Made")


class propagating_lines:
    """What is made inside from these functions stands for their lines; `keep` puts those beside a function made.

    Work that is done in several goes enters the same one again, and has nothing of it in between.
    """

    __slots__ = ("_before", "_functions", "_origins", "_own", "_plain")

    def __init__(self, functions: Iterable[Function]) -> None:
        self._functions = functions
        self._own: PlaceTable | None = None

    def __enter__(self) -> propagating_lines:
        self._before, self._origins, self._plain = ambient.table, ambient.origins, ambient.plain
        table = self._before
        if table is None:
            table = self._own = PlaceTable() if self._own is None else self._own
        pending = [function for function in self._functions if function not in table.functions]
        while pending:  # those that use others first: they know best
            function = pending.pop()
            table.functions.add(function)
            written = function.places
            for node in nodes_of(function):
                if node not in table:
                    places = node.own_origins if node.located else written.get(node, node.own_origins)
                    if places:
                        table[node] = places
            pending += [used for used in functions_in(function) if used not in table.functions]
        # Last of all: after an error above nobody would put back what was there before.
        ambient.table, ambient.plain = table, False
        if self._origins is None:
            ambient.origins = ()  # what passes make for themselves is no line's work
        return self

    def keep(self, function: Function) -> Function:
        """The function, with the lines of all its nodes, and of those of the functions inside it."""
        if self._before is None:  # otherwise, the pass around this one keeps what it hands out
            for inner in reachable_functions([function]):
                self._keep_nodes(function, inner)
        return function

    def keep_own(self, function: Function) -> Function:
        """The function, with the lines of its own nodes: those inside it have theirs."""
        self._keep_nodes(function, function)
        return function

    def _keep_nodes(self, function: Function, inner: Function) -> None:
        table = ambient.table
        assert table is not None
        function.places.update({node: table[node] for node in nodes_of(inner) if node in table})

    def take(self, function: Function, exchanged: Mapping[Node, Node]) -> None:
        """As `keep`, for a function of which it is known what each of its nodes was made from."""
        table = ambient.table
        assert table is not None
        for old, new in exchanged.items():
            if old is new and old.own_origins:
                table.setdefault(new, old.own_origins)
        if self._before is not None:
            return
        function.places.update(table)
        for node in exchanged.values():
            for inner in node.functions:
                for inner_node, places in inner.places.items():
                    function.places.setdefault(inner_node, places)

    def __exit__(self, *exception: object) -> None:
        ambient.table, ambient.origins, ambient.plain = self._before, self._origins, self._plain


def propagates_lines(
    transform: Callable[Concatenate[_Subject, _P], _Made],
) -> Callable[Concatenate[_Subject, _P], _Made]:
    """A pass over a function or module: what it makes has the lines of what it is made from."""

    @wraps(transform)
    def kept(subject: _Subject, /, *arguments: _P.args, **named: _P.kwargs) -> _Made:
        with propagating_lines(_functions_in(subject)) as places:
            result = transform(subject, *arguments, **named)
            for function in _functions_in(result):
                places.keep(function)
        return result

    return kept


# What each derivation of a session keeps.
derivations: Owned[dict[CachedDerivation[Any, Any], Callable[..., Any]]] = Owned(dict)


def forget_derivations() -> None:
    """Drops all that `cached_derivation` keeps: the parts of derivatives and batches too."""
    derivations.current.clear()


class CachedDerivation(Generic[_P, _Made]):
    """What `cached_derivation` makes of a function."""

    def __init__(self, transform: Callable[Concatenate[Function, _P], _Made], maxsize: int) -> None:
        update_wrapper(self, transform)
        self._transform, self._maxsize = transform, maxsize

    def __call__(self, function: Function, /, *arguments: _P.args, **named: _P.kwargs) -> _Made:
        if not ambient.every_line:
            kept = derivations.current.get(self)
            if kept is None:
                kept = derivations.current.setdefault(self, lru_cache(self._maxsize)(self._transform))
            return kept(function, *arguments, **named)
        made = {} if ambient.table is None else ambient.table.made
        key = (self, function, arguments, tuple(named.items()))
        if key not in made:
            made[key] = self._transform(function, *arguments, **named)
        return made[key]


def cached_derivation(
    maxsize: int,
) -> Callable[[Callable[Concatenate[Function, _P], _Made]], CachedDerivation[_P, _Made]]:
    """`lru_cache` for what is made of a function. Where lines are told apart, it lasts for the work at hand alone.

    Equal functions are one to the cache: what it holds may stand for the lines of another.
    """
    return lambda transform: CachedDerivation(transform, maxsize)


def _functions_in(result: Any) -> tuple[Function, ...]:
    if isinstance(result, Function):
        return (result,)
    if isinstance(result, Module):
        return result.functions
    return tuple(item for item in result if isinstance(item, Function)) if isinstance(result, tuple) else ()
