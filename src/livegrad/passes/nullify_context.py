"""`nullify_context`: computes what each node of a context graph needs of its context, and what each edge drops.

In: the nodes in topological order, each with the features that it reads and injects. Out: the features that reach each
node, and a `Nullification` for every edge whose caller has more. Called by context graphs when they compile, and by
engines to find what a change makes stale. Visits each node once.

    need(n) = extract(n) ∪ ⋃ need(plain inputs) ∪ ⋃ (need(scoped input) without what n injects there)

Sets of features are integers with a bit for each feature and level. The levels of a stack are adjacent bits, so that
pushing a level is a shift; the lowest bit is level 0.
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
    """What one node does with its context. `optional` features are read when there are any."""

    @property
    def name(self) -> str: ...
    @property
    def inputs(self) -> Sequence[InputUse]: ...
    @property
    def extracts(self) -> frozenset[FeatureLevel]: ...
    @property
    def optional(self) -> frozenset[FeatureLevel]: ...


class Edge(NamedTuple):
    """An `InputUse` and nothing more."""

    source: str
    injects: frozenset[str] = frozenset()
    modifies: frozenset[str] = frozenset()


class Use(NamedTuple):
    """A `ContextUse` and nothing more."""

    name: str
    inputs: Sequence[InputUse] = ()
    extracts: frozenset[FeatureLevel] = frozenset()
    optional: frozenset[FeatureLevel] = frozenset()


class Nullification(NamedTuple):
    """What an edge drops: `caller` is None where the root context enters the output, `number` counts its inputs.

    `unread_injections` are those of the dropped features that the caller itself injects there.
    """

    caller: str | None
    number: int
    source: str
    dropped: tuple[FeatureLevel, ...]
    unread_injections: tuple[FeatureLevel, ...]


class Unsourced(NamedTuple):
    """A feature that a node extracts although nobody above provides it; `path` leads from the output to the node."""

    feature: FeatureLevel
    path: tuple[str, ...]


@dataclass(frozen=True)
class ContextNeeds:
    """The result: `needs[name]` is what reaches a node, `required[name]` the part of it that cannot be missing."""

    needs: dict[str, tuple[FeatureLevel, ...]]
    required: dict[str, frozenset[FeatureLevel]]
    unsourced: tuple[Unsourced, ...]
    find_nullifications: Callable[[], Iterable[Nullification]] = field(repr=False)

    @cached_property
    def nullifications(self) -> tuple[Nullification, ...]:
        """Every edge that drops something."""
        return tuple(self.find_nullifications())


def nullify_context(uses: Sequence[ContextUse], root: Collection[FeatureLevel]) -> ContextNeeds:
    """The needs of a graph whose last node is the output, evaluated in a context with the features of `root`.

    >>> time, size = FeatureLevel("animation_time"), FeatureLevel("footprint")
    >>> leaf, top = Use("leaf", extracts=frozenset({size})), Use("top", [Edge("leaf")], frozenset({time}))
    >>> result = nullify_context([leaf, top], [time, size])
    >>> result.needs["leaf"], result.nullifications[0].dropped
    ((FeatureLevel(feature='footprint', level=0),), (FeatureLevel(feature='animation_time', level=0),))
    """
    bits = _Bits(uses, root)
    required, optional = _gather(uses, bits)
    root_mask, output = bits.mask(root), uses[-1].name
    kept = required
    # Only an optional feature can be needed and yet come from nowhere: without any there is nothing to take away.
    if optional:
        reaching = _reach(uses, bits, root_mask)
        kept = {name: (must | optional[name]) & reaching[name] for name, must in required.items()}
    # Few sets are different, however many nodes there are.
    features = {mask: bits.features(mask) for mask in set(kept.values())}
    feature_sets = {mask: bits.feature_set(mask) for mask in set(required.values())}
    by_name = {use.name: use for use in uses} if required[output] & ~root_mask else {}
    return ContextNeeds(
        needs=dict(zip(kept, map(features.__getitem__, kept.values()), strict=True)),
        required=dict(zip(required, map(feature_sets.__getitem__, required.values()), strict=True)),
        unsourced=tuple(
            _find_extract(by_name, output, bits, required, bit) for bit in _single_bits(required[output] & ~root_mask)
        ),
        find_nullifications=lambda: _nullifications(uses, bits, kept, root_mask),
    )


def _gather(uses: Sequence[ContextUse], bits: _Bits) -> tuple[dict[str, int], dict[str, int]]:
    """The need equation, from the leaves up: what cannot be missing, and what may be (nothing, if no node says so)."""
    required: dict[str, int] = {}
    optional: dict[str, int] = {}
    mask_of, lower = bits.mask, bits.lower
    if not bits.any_optional:
        for use in uses:
            must = mask_of(use.extracts) if use.extracts else 0
            for edge in use.inputs:
                below = required[edge.source]
                if below:
                    must |= lower(edge, below) if edge.injects or edge.modifies else below
            required[use.name] = must
        return required, {}
    for use in uses:
        must = mask_of(use.extracts) if use.extracts else 0
        may = mask_of(use.optional) if use.optional else 0
        for edge in use.inputs:
            source = edge.source
            if edge.injects or edge.modifies:
                must |= lower(edge, required[source])
                may |= lower(edge, optional[source])
            else:
                must |= required[source]
                may |= optional[source]
        required[use.name] = must
        optional[use.name] = may
    return required, optional


def _reach(uses: Sequence[ContextUse], bits: _Bits, root_mask: int) -> dict[str, int]:
    """The features that some path from the output brings to each node, were nothing dropped."""
    reaching = dict.fromkeys([use.name for use in uses], 0)
    reaching[uses[-1].name] = root_mask
    for use in reversed(uses):
        for edge in use.inputs:
            reaching[edge.source] |= bits.raised(edge, reaching[use.name])
    return reaching


def _nullifications(
    uses: Sequence[ContextUse], bits: _Bits, kept: dict[str, int], root_mask: int
) -> Iterable[Nullification]:
    output = uses[-1].name
    dropped = root_mask & ~kept[output]
    if dropped:
        yield Nullification(None, 0, output, bits.features(dropped), ())
    for use in uses:
        reached = kept[use.name]
        for number, edge in enumerate(use.inputs):
            dropped = bits.raised(edge, reached) & ~kept[edge.source]
            if dropped:
                unread = bits.features(dropped & bits.injected(edge))
                yield Nullification(use.name, number, edge.source, bits.features(dropped), unread)


def _find_extract(
    uses: Mapping[str, ContextUse], output: str, bits: _Bits, required: dict[str, int], bit: int
) -> Unsourced:
    """Follows a feature that the output lacks down to a node that extracts it."""
    path = [output]
    while not bits.mask(uses[path[-1]].extracts) & bit:
        for edge in uses[path[-1]].inputs:
            below = next((b for b in _single_bits(required[edge.source]) if bits.lower(edge, b) & bit), 0)
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
    """Which bit stands for which feature and level, and how sets change across an edge."""

    def __init__(self, uses: Sequence[ContextUse], root: Collection[FeatureLevel]) -> None:
        # Many nodes share few sets, so this looks at sets, not at nodes.
        extracted, optional = set(map(attrgetter("extracts"), uses)), set(map(attrgetter("optional"), uses))
        self.any_optional = any(optional)
        read = set(chain.from_iterable(extracted | optional)) | set(root)
        # One level more than anyone reads: what a caller pushes onto the deepest level is held, and then dropped.
        self._depth = max((level for _, level in read), default=0) + 2
        self._levels: list[FeatureLevel] = []
        self._lane: dict[str, int] = {}
        self._masks: dict[Collection[FeatureLevel], int] = {}
        self._texts: dict[int, tuple[FeatureLevel, ...]] = {0: ()}
        self._sets: dict[int, frozenset[FeatureLevel]] = {}

    def _lane_of(self, name: str) -> int:
        """The bits of a feature's levels, which it gets when it is first met."""
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
        names = self._texts.get(mask)
        if names is None:
            names = tuple(sorted(self._levels[bit.bit_length() - 1] for bit in _single_bits(mask)))
            self._texts[mask] = names
        return names

    def feature_set(self, mask: int) -> frozenset[FeatureLevel]:
        features = self._sets.get(mask)
        if features is None:
            features = self._sets[mask] = frozenset(self.features(mask))
        return features

    def lower(self, edge: InputUse, mask: int) -> int:
        """What the caller needs so that `mask` is there behind the edge."""
        for name in edge.injects:
            lane = self._lane_of(name)
            # Level 0 is what is injected; deeper levels are the caller's own, one level up. Others have level 0 only.
            mask = (mask & ~lane) | ((mask & lane) >> 1 & lane)
        for name in edge.modifies:
            lane = self._lane_of(name)
            mask = (mask & ~lane) | ((mask & lane) >> 1 & lane) | (mask & lane & -lane)
        return mask

    def raised(self, edge: InputUse, mask: int) -> int:
        """What there is behind the edge when the caller has `mask`."""
        for name in edge.modifies:
            lane = self._lane_of(name)
            mask = (mask & ~lane) | ((mask & lane) << 1 & lane) | (mask & lane & -lane)
        for name in edge.injects:
            lane = self._lane_of(name)
            mask = (mask & ~lane) | ((mask & lane) << 1 & lane) | lane & -lane
        return mask

    def injected(self, edge: InputUse) -> int:
        mask = 0
        for name in chain(edge.injects, edge.modifies):
            lane = self._lane_of(name)
            mask |= lane & -lane
        return mask
