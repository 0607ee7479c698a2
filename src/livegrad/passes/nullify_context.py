"""Liveness analysis of context features: which features each node of a context graph needs, and which each edge drops.

In: the nodes in topological order, each with the features that it reads and injects. Out: the features that reach each
node, and a `Nullification` for every edge whose caller has more. Called by context graphs when they compile, and by
engines to find what a change makes stale. Visits each node once.

    need(n) = extract(n) ∪ ⋃ need(plain inputs) ∪ ⋃ (need(scoped input) without what n injects there)

Sets of features are bit masks with a bit for each feature and level. The levels of a stack are adjacent bits, level 0
lowest, so pushing a level is a shift.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import NamedTuple, Protocol

from livegrad.ops.context import FeatureLevel, feature_named


class InputUse(Protocol):
    """One input edge: the name of its source, and the features that the caller injects or modifies on it."""

    @property
    def source(self) -> str: ...
    @property
    def injects(self) -> frozenset[str]: ...
    @property
    def modifies(self) -> frozenset[str]: ...


class ContextUse(Protocol):
    """How one node uses its context. It reads `optional` features only if they exist."""

    @property
    def name(self) -> str: ...
    @property
    def inputs(self) -> Sequence[InputUse]: ...
    @property
    def extracts(self) -> frozenset[FeatureLevel]: ...
    @property
    def optional(self) -> frozenset[FeatureLevel]: ...


class Edge(NamedTuple):
    """A plain `InputUse`."""

    source: str
    injects: frozenset[str] = frozenset()
    modifies: frozenset[str] = frozenset()


class Use(NamedTuple):
    """A plain `ContextUse`."""

    name: str
    inputs: Sequence[InputUse] = ()
    extracts: frozenset[FeatureLevel] = frozenset()
    optional: frozenset[FeatureLevel] = frozenset()


class Nullification(NamedTuple):
    """The features that an edge drops. `number` is the index of the edge among the caller's inputs.

    `caller` is None where the root context enters the output. `unread_injections` are the dropped features that the
    caller injects on this edge.
    """

    caller: str | None
    number: int
    source: str
    dropped: tuple[FeatureLevel, ...]
    unread_injections: tuple[FeatureLevel, ...]


class Unsourced(NamedTuple):
    """A feature that a node extracts but no caller provides; `path` leads from the output to the node."""

    feature: FeatureLevel
    path: tuple[str, ...]


@dataclass(frozen=True)
class ContextNeeds:
    """The result: `needs[name]` are the features that reach a node, `required[name]` those that must exist."""

    needs: dict[str, tuple[FeatureLevel, ...]]
    required: dict[str, frozenset[FeatureLevel]]
    unsourced: tuple[Unsourced, ...]
    find_nullifications: Callable[[], Iterable[Nullification]] = field(repr=False)

    @cached_property
    def nullifications(self) -> tuple[Nullification, ...]:
        """All edges that drop features."""
        return tuple(self.find_nullifications())


def nullify_context(uses: Sequence[ContextUse], root: Collection[FeatureLevel]) -> ContextNeeds:
    """The needs of the nodes of a graph. Its last node is the output, evaluated in a context with the features `root`.

    >>> time, size = FeatureLevel("animation_time"), FeatureLevel("footprint")
    >>> leaf, top = Use("leaf", extracts=frozenset({size})), Use("top", [Edge("leaf")], frozenset({time}))
    >>> result = nullify_context([leaf, top], [time, size])
    >>> result.needs["leaf"], result.nullifications[0].dropped
    ((FeatureLevel(feature='footprint', level=0),), (FeatureLevel(feature='animation_time', level=0),))
    """
    bits = _Bits(uses, root)
    required, optional = _gather(uses, bits)
    root_mask, output = bits.mask(root), uses[-1].name
    needed = required
    # Only optional features may be needed although no caller provides them.
    if optional:
        reaching = _reach(uses, bits, root_mask)
        needed = {name: (must | optional[name]) & reaching[name] for name, must in required.items()}
    # Convert each distinct mask once: there are few, even for many nodes.
    features = {mask: bits.features(mask) for mask in set(needed.values())}
    feature_sets = {mask: bits.feature_set(mask) for mask in set(required.values())}
    by_name = {use.name: use for use in uses} if required[output] & ~root_mask else {}
    return ContextNeeds(
        needs=dict(zip(needed, map(features.__getitem__, needed.values()), strict=True)),
        required=dict(zip(required, map(feature_sets.__getitem__, required.values()), strict=True)),
        unsourced=tuple(
            _find_extract(by_name, output, bits, required, bit) for bit in _single_bits(required[output] & ~root_mask)
        ),
        find_nullifications=lambda: _nullifications(uses, bits, needed, root_mask),
    )


def _gather(uses: Sequence[ContextUse], bits: _Bits) -> tuple[dict[str, int], dict[str, int]]:
    """Solves the need equation bottom-up, for required and for optional features (empty if no node has any)."""
    required: dict[str, int] = {}
    optional: dict[str, int] = {}
    mask_of, lower_levels = bits.mask, bits.lower_levels
    if not bits.any_optional:
        for use in uses:
            must = mask_of(use.extracts) if use.extracts else 0
            for edge in use.inputs:
                below = required[edge.source]
                if below:
                    must |= lower_levels(edge, below) if edge.injects or edge.modifies else below
            required[use.name] = must
        return required, {}
    for use in uses:
        must = mask_of(use.extracts) if use.extracts else 0
        may = mask_of(use.optional) if use.optional else 0
        for edge in use.inputs:
            source = edge.source
            if edge.injects or edge.modifies:
                must |= lower_levels(edge, required[source])
                may |= lower_levels(edge, optional[source])
            else:
                must |= required[source]
                may |= optional[source]
        required[use.name] = must
        optional[use.name] = may
    return required, optional


def _reach(uses: Sequence[ContextUse], bits: _Bits, root_mask: int) -> dict[str, int]:
    """The features that would reach each node from the output if no edge dropped any."""
    reaching = dict.fromkeys([use.name for use in uses], 0)
    reaching[uses[-1].name] = root_mask
    for use in reversed(uses):
        for edge in use.inputs:
            reaching[edge.source] |= bits.raise_levels(edge, reaching[use.name])
    return reaching


def _nullifications(
    uses: Sequence[ContextUse], bits: _Bits, needed: dict[str, int], root_mask: int
) -> Iterable[Nullification]:
    output = uses[-1].name
    dropped = root_mask & ~needed[output]
    if dropped:
        yield Nullification(None, 0, output, bits.features(dropped), ())
    for use in uses:
        reached = needed[use.name]
        for index, edge in enumerate(use.inputs):
            dropped = bits.raise_levels(edge, reached) & ~needed[edge.source]
            if dropped:
                unread = bits.features(dropped & bits.injected_levels(edge))
                yield Nullification(use.name, index, edge.source, bits.features(dropped), unread)


def _find_extract(
    uses: Mapping[str, ContextUse], output: str, bits: _Bits, required: dict[str, int], bit: int
) -> Unsourced:
    """Follows a feature that no caller provides from the output down to a node that extracts it."""
    path = [output]
    while not bits.mask(uses[path[-1]].extracts) & bit:
        for edge in uses[path[-1]].inputs:
            below = next((b for b in _single_bits(required[edge.source]) if bits.lower_levels(edge, b) & bit), 0)
            if below:
                path.append(edge.source)
                bit = below
                break
    return Unsourced(bits.features(bit)[0], tuple(path))


def _single_bits(mask: int) -> Iterable[int]:
    while mask:
        bit = mask & -mask
        yield bit
        mask ^= bit


class _Bits:
    """Assigns a bit to each feature and level, and computes how masks change across edges."""

    def __init__(self, uses: Sequence[ContextUse], root: Collection[FeatureLevel]) -> None:
        # Collect distinct sets first: many nodes share few of them.
        extracted, optional = set(map(attrgetter("extracts"), uses)), set(map(attrgetter("optional"), uses))
        self.any_optional = any(optional)
        read = set(chain.from_iterable(extracted | optional)) | set(root)
        # One level more than any node reads, for the level that a caller pushes beyond the deepest.
        self._depth = max((level for _, level in read), default=0) + 2
        self._levels: list[FeatureLevel] = []
        self._lane: dict[str, int] = {}
        self._masks: dict[Collection[FeatureLevel], int] = {}
        self._feature_tuples: dict[int, tuple[FeatureLevel, ...]] = {0: ()}
        self._sets: dict[int, frozenset[FeatureLevel]] = {}

    def _lane_of(self, name: str) -> int:
        """The mask of a feature's levels; assigns bits on first use."""
        lane = self._lane.get(name)
        if lane is None:
            width, first = self._depth if feature_named(name).stack else 1, len(self._levels)
            self._levels.extend(FeatureLevel(name, level) for level in range(width))
            lane = self._lane[name] = ((1 << width) - 1) << first
        return lane

    def mask(self, features: Collection[FeatureLevel]) -> int:
        bits = self._masks.get(features) if features.__class__ is frozenset else None
        if bits is None:
            bits = 0
            for name, level in features:
                lane = self._lane_of(name)
                bits |= (lane & -lane) << level
            if isinstance(features, frozenset):
                self._masks[features] = bits
        return bits

    def features(self, mask: int) -> tuple[FeatureLevel, ...]:
        names = self._feature_tuples.get(mask)
        if names is None:
            names = tuple(sorted(self._levels[bit.bit_length() - 1] for bit in _single_bits(mask)))
            self._feature_tuples[mask] = names
        return names

    def feature_set(self, mask: int) -> frozenset[FeatureLevel]:
        features = self._sets.get(mask)
        if features is None:
            features = self._sets[mask] = frozenset(self.features(mask))
        return features

    def lower_levels(self, edge: InputUse, mask: int) -> int:
        """The features that the caller needs so that `mask` exists on the other side of the edge."""
        for name in edge.injects:
            lane = self._lane_of(name)
            # The edge provides level 0. Deeper levels of a stack are the caller's levels, shifted by one.
            mask = (mask & ~lane) | ((mask & lane) >> 1 & lane)
        for name in edge.modifies:
            lane = self._lane_of(name)
            mask = (mask & ~lane) | ((mask & lane) >> 1 & lane) | (mask & lane & -lane)
        return mask

    def raise_levels(self, edge: InputUse, mask: int) -> int:
        """The features on the other side of the edge if the caller has `mask`."""
        for name in edge.modifies:
            lane = self._lane_of(name)
            mask = (mask & ~lane) | ((mask & lane) << 1 & lane) | (mask & lane & -lane)
        for name in edge.injects:
            lane = self._lane_of(name)
            mask = (mask & ~lane) | ((mask & lane) << 1 & lane) | lane & -lane
        return mask

    def injected_levels(self, edge: InputUse) -> int:
        mask = 0
        for name in chain(edge.injects, edge.modifies):
            lane = self._lane_of(name)
            mask |= lane & -lane
        return mask
