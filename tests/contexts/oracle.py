"""An independent model of context graphs: no caching, no nullification, whole contexts passed down.

`needs` is the need equation written down with sets; `Naive` evaluates by plain recursion and notes what went into each
node, from which follows how often a node must be computed at least.
"""

import hashlib
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from livegrad.contexts import ContextGraph, NodeContext

STACKS = {"index"}
Level = tuple[str, int]


@dataclass(frozen=True)
class Edge:
    source: str
    scoped: bool = False
    injects: frozenset[str] = frozenset()
    modifies: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Spec:
    """One node of the model. `tag` stands for its code; a `coarse` node has only two different values."""

    name: str
    tag: int
    edges: tuple[Edge, ...] = ()
    extracts: frozenset[Level] = frozenset()
    optional: frozenset[Level] = frozenset()
    coarse: bool = False
    asks: int = 2  # how often it evaluates each scoped input


Document = dict[str, Spec]


def text(level: Level) -> str:
    return f"{level[0]}@{level[1]}" if level[1] else level[0]


def condensed(coarse: bool, *parts: Any) -> str:
    word = hashlib.sha256(repr(parts).encode()).hexdigest()
    if coarse:
        return "low" if word[0] < "8" else "high"
    return word[:16]


# --- the need equation -----------------------------------------------------------------------------------------------


def needs(document: Document, optional_too: bool = True) -> dict[str, frozenset[Level]]:
    @cache
    def need(name: str) -> frozenset[Level]:
        spec = document[name]
        found = set(spec.extracts) | (set(spec.optional) if optional_too else set())
        for edge in spec.edges:
            found |= through(edge, need(edge.source))
        return frozenset(found)

    return {name: need(name) for name in document}


def through(edge: Edge, below: frozenset[Level]) -> set[Level]:
    found: set[Level] = set()
    for feature, level in below:
        if feature in edge.modifies:
            if level == 0:
                found.add((feature, 0))
            else:
                found.add((feature, level - 1))
        elif feature in edge.injects:
            if level > 0:
                found.add((feature, level - 1))
        else:
            found.add((feature, level))
    return found


# --- evaluation without caching --------------------------------------------------------------------------------------

Whole = dict[str, tuple[Any, ...]]  # every feature, level 0 first


def read(context: Whole, level: Level) -> Any:
    values = context.get(level[0], ())
    return values[level[1]] if level[1] < len(values) else None


@dataclass
class Naive:
    """Evaluates documents, and collects the distinct inputs of each node."""

    seen: dict[str, set[Any]] = field(default_factory=dict)
    projections: dict[str, set[Any]] = field(default_factory=dict)

    def evaluate(self, document: Document, output: str, context: Whole) -> str:
        self.document, self.need = document, needs(document)
        return self._value(output, context)

    def counts(self) -> dict[str, int]:
        return {name: len(found) for name, found in self.seen.items()}

    def _value(self, name: str, context: Whole) -> str:
        spec = self.document[name]
        reads = tuple(read(context, level) for level in sorted(spec.extracts | spec.optional))
        plain = tuple(self._value(edge.source, context) for edge in spec.edges if not edge.scoped)
        answers, changed = [], []
        for edge in spec.edges:
            if edge.scoped:
                wanted = {f for f, level in self.need[edge.source] if level == 0 and f in edge.modifies}
                changed.append(tuple((f, read(context, (f, 0))) for f in sorted(wanted)))
                for turn in range(spec.asks):
                    answers.append(self._value(edge.source, scoped_context(edge, context, reads, turn)))
        shape = tuple((e.scoped, e.injects, e.modifies, self._overlay(e)) for e in spec.edges)
        identity = (spec.tag, spec.coarse, spec.asks, spec.extracts, spec.optional, shape)
        went_in = (identity, reads, tuple(changed), plain, tuple(answers))
        self.seen.setdefault(name, set()).add(went_in)
        projection = tuple((text(level), read(context, level)) for level in sorted(self.need[name]))
        self.projections.setdefault(name, set()).add(projection)
        return condensed(spec.coarse, spec.tag, reads, plain, tuple(answers))

    def _overlay(self, edge: Edge) -> frozenset[str]:
        return frozenset(f for f, level in self.need[edge.source] if level == 0) & (edge.injects | edge.modifies)


def injected_value(feature: str, reads: tuple[Any, ...], turn: int) -> Any:
    return (feature, turn, len(reads))


def changed_value(value: Any) -> Any:
    return ("changed", condensed(False, value)[:4])


def scoped_context(edge: Edge, context: Whole, reads: tuple[Any, ...], turn: int) -> Whole:
    inner = dict(context)
    for feature in edge.injects:
        rest = context.get(feature, ()) if feature in STACKS else ()
        inner[feature] = (injected_value(feature, reads, turn), *rest)
    for feature in edge.modifies:
        values = context.get(feature, ())
        if values:
            inner[feature] = (changed_value(values[0]), *(values if feature in STACKS else ()))
    return inner


# --- the same document as a real graph -------------------------------------------------------------------------------


def node_function(spec: Spec) -> Any:
    def function(ctx: NodeContext, *inputs: Any) -> str:
        reads = tuple(ctx[text(level)] for level in sorted(spec.extracts | spec.optional))
        plain = tuple(value for edge, value in zip(spec.edges, inputs, strict=True) if not edge.scoped)
        answers = []
        for edge, ask in zip(spec.edges, inputs, strict=True):
            if edge.scoped:
                for turn in range(spec.asks):
                    given = {f: injected_value(f, reads, turn) for f in edge.injects}
                    inner = ctx.inject(**given).modify(**dict.fromkeys(edge.modifies, changed_value))
                    answers.append(ask(inner))
        return condensed(spec.coarse, spec.tag, reads, plain, tuple(answers))

    return function


_functions: dict[Any, Any] = {}


def add_to(graph: ContextGraph, spec: Spec, *, edit: bool = False) -> None:
    """Adds or edits a node. Specs that differ only in name or wiring share their function, like edits."""
    ordered = tuple(sorted(spec.edges, key=lambda edge: edge.scoped))  # the plain form has plain inputs first
    spec = Spec(spec.name, spec.tag, ordered, spec.extracts, spec.optional, spec.coarse, spec.asks)
    shape = tuple((edge.scoped, edge.injects, edge.modifies) for edge in ordered)
    key = (spec.tag, shape, spec.extracts, spec.optional, spec.coarse, spec.asks)
    function = _functions.setdefault(key, node_function(spec))
    options: dict[str, Any] = {
        "plain": [edge.source for edge in ordered if not edge.scoped],
        "scoped": [edge.source for edge in ordered if edge.scoped],
        "extract": [text(level) for level in spec.extracts],
        "optional": [text(level) for level in spec.optional],
        "inject": {edge.source: edge.injects for edge in ordered if edge.injects},
        "modify": {edge.source: edge.modifies for edge in ordered if edge.modifies},
    }
    if edit:
        graph.replace(spec.name, function, **options)
    else:
        graph.node(spec.name, function, **options)
