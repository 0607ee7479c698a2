"""Compiles context graphs: finds the needs of every node, and the features that are dropped on every edge.

`link` orders the nodes, runs the pass `nullify_context`, reports errors, and creates a `Unit` for each node, with the
memo tables of its content.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from livegrad.contexts.cache.interned_values import ABSENT, Interned
from livegrad.contexts.cache.store import MemoStore, Table
from livegrad.contexts.content import disk_identity, function_identity
from livegrad.contexts.declare import InputDeclaration, NodeDeclaration
from livegrad.contexts.errors import ContextError
from livegrad.contexts.node_order import order_nodes
from livegrad.ops.context import FeatureLevel, feature_named
from livegrad.passes.nullify_context import ContextNeeds, nullify_context

Environment = tuple[Interned, ...]  # the values of a node's needed features, in the order of its `need`
Projection = Callable[[Environment], Environment]


@dataclass(slots=True, eq=False)
class Unit:
    """One node, ready to be evaluated.

    `reads` maps declared features to positions in the environment (None: absent); `direct` selects the features that
    the function itself reads (None: all). `table` has results by needed features, including those of its inputs;
    `by_inputs` has results by direct inputs.
    """

    name: str
    declaration: NodeDeclaration
    need: tuple[FeatureLevel, ...]
    required: frozenset[FeatureLevel]
    reads: dict[str, int | None]
    injects: frozenset[str]
    direct: Projection | None
    plain: tuple[PlainEdge, ...]
    scoped: tuple[ScopedEdge, ...]
    table: Table
    by_inputs: Table
    slots: dict[Any, Any]
    disk_key: bytes | None

    def __repr__(self) -> str:
        return f"<unit {self.name}>"


class PlainEdge(NamedTuple):
    """A plain input. It is a tuple, because computing a node unpacks one per input."""

    project: Projection | None  # None: the child has the same needs as the caller
    slots: dict[Any, Any]  # results of the child
    child: Unit


@dataclass(frozen=True, slots=True, eq=False)
class ScopedEdge:
    """A scoped input.

    `overlay` has the features that the caller writes and the child needs; `required` has those that are not optional.

    `combine` maps the caller's environment, followed by the overlay, to the child's environment.
    """

    index: int  # among the scoped inputs of its node
    child: Unit
    writes: frozenset[str]
    modifies: frozenset[str]
    overlay: tuple[str, ...]
    required: frozenset[str]
    combine: Projection


@dataclass(frozen=True, eq=False)
class Linked:
    """A compiled graph: units with the output last, and the result of the analysis."""

    units: tuple[Unit, ...]
    needs: ContextNeeds
    root: tuple[FeatureLevel, ...]

    @property
    def output(self) -> Unit:
        return self.units[-1]


def link(nodes: Mapping[str, NodeDeclaration], output: str, root: Sequence[FeatureLevel], store: MemoStore) -> Linked:
    """Compiles the part of a graph that the output needs."""
    order = order_nodes(nodes, output)
    needs = nullify_context(order, root)
    if needs.unsourced:
        raise _missing_source_error(nodes, needs)
    linker = _Linker(store)
    for declaration in order:
        linker.add(declaration, needs.needs[declaration.name], needs.required[declaration.name])
    return Linked(tuple(linker.units.values()), needs, tuple(root))


def _missing_source_error(nodes: Mapping[str, NodeDeclaration], needs: ContextNeeds) -> ContextError:
    unsourced = needs.unsourced[0]
    node = nodes[unsourced.path[-1]]
    path = " → ".join(f"`{name}`" for name in unsourced.path)
    return ContextError(
        f"node `{node.name}` extracts `{unsourced.feature}`, which nothing above it provides",
        where=node.origin,
        expected=f"a node on the path that injects `{unsourced.feature.feature}`, or a root context that has it",
        found=f"the path {path}",
        help=f'compile with root=["{unsourced.feature}"], inject it, or declare it optional',
    )


class _Linker:
    """Creates units, inputs first."""

    def __init__(self, store: MemoStore) -> None:
        self.units: dict[str, Unit] = {}
        self._store = store
        self._projections: dict[tuple[Any, Any], Projection | None] = {}

    def add(
        self, declaration: NodeDeclaration, need: tuple[FeatureLevel, ...], required: frozenset[FeatureLevel]
    ) -> None:
        units = self.units
        inputs = [units[edge.source] for edge in declaration.inputs]
        plain = tuple(
            [
                PlainEdge(self._projection(need, child.need), child.slots, child)
                for edge, child in zip(declaration.inputs, inputs, strict=True)
                if not edge.scoped
            ]
        )
        scoped_inputs = [edge for edge in declaration.inputs if edge.scoped]
        scoped = tuple(
            [_scoped_edge(index, edge, units[edge.source], need) for index, edge in enumerate(scoped_inputs)]
        )
        reads = _readable(declaration, need, scoped)
        direct = tuple(sorted({position for position in reads.values() if position is not None}))
        content = (
            function_identity(declaration),
            tuple([(edge.scoped, edge.injects, edge.modifies) for edge in declaration.inputs]),
            declaration.extracts,
            declaration.optional,
            declaration.extract_all,
            tuple([need[position] for position in direct]),
            tuple([edge.overlay for edge in scoped]),
        )
        by_inputs = self._store.table(content)
        table = self._store.table((by_inputs, need, *[child.table for child in inputs]), declaration.name)
        units[declaration.name] = Unit(
            name=declaration.name,
            declaration=declaration,
            need=need,
            required=required,
            reads=reads,
            injects=declaration.injects | declaration.modifies if scoped else frozenset(),
            direct=None if len(direct) == len(need) else _getter(direct),
            plain=plain,
            scoped=scoped,
            table=table,
            by_inputs=by_inputs,
            slots=table.slots,
            disk_key=self._disk_key(declaration, need, inputs),
        )

    def _projection(self, caller: tuple[FeatureLevel, ...], child: tuple[FeatureLevel, ...]) -> Projection | None:
        """The map from the caller's environment to that of a plain input; None if they are equal."""
        if caller is child or caller == child:
            return None
        projection = self._projections.get((caller, child))
        if projection is None:
            position = {feature: index for index, feature in enumerate(caller)}
            projection = _getter([position.get(feature, len(caller)) for feature in child])
            if not set(child) <= set(caller):  # an optional feature that is present only on other paths
                projection = _append_absent(projection)
            self._projections[caller, child] = projection
        return projection

    def _disk_key(self, declaration: NodeDeclaration, need: Any, inputs: Sequence[Unit]) -> bytes | None:
        key = disk_identity(declaration, need, [child.disk_key for child in inputs])
        if declaration.persist and key is None:
            unversioned = next((child for child in inputs if child.disk_key is None), None)
            raise ContextError(
                f"node `{declaration.name}` cannot be stored on disk",
                where=declaration.origin,
                found=f"input `{unversioned.name}` without a version" if unversioned else "no version",
                help="give every Python function below it a version",
            )
        return key


def _scoped_edge(edge_index: int, edge: InputDeclaration, child: Unit, need: tuple[FeatureLevel, ...]) -> ScopedEdge:
    writes = edge.injects | edge.modifies
    overlay = tuple(dict.fromkeys(f.feature for f in child.need if f.feature in writes and f.level == 0))
    position: dict[Any, int] = {feature: index for index, feature in enumerate(need)}
    position.update({name: len(need) + index for index, name in enumerate(overlay)})
    absent = len(need) + len(overlay)
    positions = [position.get(_source_of(feature, writes), absent) for feature in child.need]
    combine = _getter(positions)
    return ScopedEdge(
        index=edge_index,
        child=child,
        writes=writes,
        modifies=edge.modifies,
        overlay=overlay,
        required=frozenset(feature.feature for feature in child.required if feature.level == 0) & writes,
        combine=_append_absent(combine) if absent in positions else combine,
    )


def _source_of(feature: FeatureLevel, writes: frozenset[str]) -> FeatureLevel | str:
    """The source of a scoped input's feature: the overlay (a name), or the caller's own context."""
    if feature.feature not in writes:
        return feature
    if feature.level == 0:
        return feature.feature
    assert feature_named(feature.feature).stack
    return FeatureLevel(feature.feature, feature.level - 1)


def _readable(
    declaration: NodeDeclaration, need: tuple[FeatureLevel, ...], scoped: tuple[ScopedEdge, ...]
) -> dict[str, int | None]:
    """The positions of declared features in the environment; None for a modified feature that no scoped input needs."""
    position = {feature: index for index, feature in enumerate(need)}
    reads: dict[str, int | None] = {}
    for name in declaration.modifies:
        is_needed = any(name in edge.modifies and name in edge.overlay for edge in scoped)
        reads[name] = position.get(FeatureLevel(name)) if is_needed else None
    for feature in (*declaration.extracts, *declaration.optional):
        reads[str(feature)] = position.get(feature)
    return reads


def _empty(environment: Environment) -> Environment:
    return ()


def _getter(positions: Sequence[int]) -> Projection:
    if not positions:
        return _empty
    if list(positions) == list(range(positions[0], positions[0] + len(positions))):
        return itemgetter(slice(positions[0], positions[0] + len(positions)))  # returns a tuple, even of length one
    return itemgetter(*positions)


def _append_absent(projection: Projection) -> Projection:
    return lambda environment: projection((*environment, ABSENT))
