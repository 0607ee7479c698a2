"""What each node of a context graph needs of its context, and what is dropped on each edge: `nullify_context`.

In: the nodes in an order where inputs come first, each with what it reads and what it puts into the contexts of its
scoped inputs. Out: the features that reach each node, and a `Nullification` for every edge whose caller holds more
than that. Context graphs call it when they compile, engines to find what a change makes stale. One visit a node.

    need(n) = extract(n) ∪ ⋃ need(plain inputs) ∪ ⋃ (need(scoped input) without what n injects there)

Sets of features are integers with a bit for each feature and level. A stack's levels lie side by side, so that pushing
a level is a shift.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from livegrad.ops.context import FeatureLevel, feature_named


@dataclass(frozen=True, slots=True)
class InputUse:
    """One input edge: the position of its source, and the features that the caller injects or modifies on it."""

    source: int
    injects: frozenset[str] = frozenset()
    modifies: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ContextUse:
    """What one node does with its context. `optional` features are read when there are any."""

    inputs: tuple[InputUse, ...] = ()
    extracts: frozenset[FeatureLevel] = frozenset()
    optional: frozenset[FeatureLevel] = frozenset()


@dataclass(frozen=True, slots=True)
class Nullification:
    """What an edge drops: `caller` is None where the root context enters the output.

    `unread_injections` are those of the dropped features that the caller itself injects there.
    """

    caller: int | None
    position: int
    source: int
    dropped: tuple[FeatureLevel, ...]
    unread_injections: tuple[FeatureLevel, ...]


@dataclass(frozen=True, slots=True)
class Unsourced:
    """A feature that a node extracts although nobody above provides it; `path` leads from the output to the node."""

    feature: FeatureLevel
    path: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ContextNeeds:
    """The result: `needs[n]` is what reaches node n, `required[n]` the part of it that cannot be missing."""

    needs: tuple[tuple[FeatureLevel, ...], ...]
    required: tuple[frozenset[FeatureLevel], ...]
    nullifications: tuple[Nullification, ...]
    unsourced: tuple[Unsourced, ...]


def nullify_context(uses: Sequence[ContextUse], root: Collection[FeatureLevel]) -> ContextNeeds:
    """The needs of a graph whose last node is the output, evaluated in a context with the features of `root`.

    >>> time, size = FeatureLevel("animation_time"), FeatureLevel("footprint")
    >>> leaf, top = ContextUse(extracts=frozenset({size})), ContextUse((InputUse(0),), extracts=frozenset({time}))
    >>> result = nullify_context([leaf, top], [time, size])
    >>> result.needs[0], result.nullifications[0].dropped
    ((FeatureLevel(feature='footprint', level=0),), (FeatureLevel(feature='animation_time', level=0),))
    """
    bits = _Bits(uses, root)
    required, optional = _gather(uses, bits)
    given = bits.mask(root)
    # Only an optional feature can be needed and yet come from nowhere: without any there is nothing to take away.
    if any(optional):
        reaching = _reach(uses, bits, given)
        kept = [(must | may) & there for must, may, there in zip(required, optional, reaching, strict=True)]
    else:
        kept = required
    missing = required[-1] & ~given
    return ContextNeeds(
        needs=tuple([bits.features(mask) for mask in kept]),
        required=tuple([bits.feature_set(mask) for mask in required]),
        nullifications=tuple(_nullifications(uses, bits, kept, given)),
        unsourced=tuple(_find_extract(uses, bits, required, bit) for bit in _single_bits(missing)),
    )


def _gather(uses: Sequence[ContextUse], bits: _Bits) -> tuple[list[int], list[int]]:
    """The need equation, from the leaves up: what cannot be missing, and what may be."""
    required: list[int] = []
    optional: list[int] = []
    mask_of, lower = bits.mask, bits.lower
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
        required.append(must)
        optional.append(may)
    return required, optional


def _reach(uses: Sequence[ContextUse], bits: _Bits, given: int) -> list[int]:
    """The features that some path from the output brings to each node, were nothing dropped."""
    reaching = [0] * len(uses)
    reaching[-1] = given
    for position in reversed(range(len(uses))):
        for edge in uses[position].inputs:
            reaching[edge.source] |= bits.raised(edge, reaching[position])
    return reaching


def _nullifications(uses: Sequence[ContextUse], bits: _Bits, kept: list[int], given: int) -> Iterable[Nullification]:
    dropped = given & ~kept[-1]
    if dropped:
        yield Nullification(None, 0, len(uses) - 1, bits.features(dropped), ())
    for caller, use in enumerate(uses):
        own = kept[caller]
        for position, edge in enumerate(use.inputs):
            scoped = edge.injects or edge.modifies
            dropped = (bits.raised(edge, own) if scoped else own) & ~kept[edge.source]
            if dropped:
                unread = bits.features(dropped & bits.injected(edge)) if scoped else ()
                yield Nullification(caller, position, edge.source, bits.features(dropped), unread)


def _find_extract(uses: Sequence[ContextUse], bits: _Bits, required: list[int], bit: int) -> Unsourced:
    """Follows a feature that the output lacks down to a node that extracts it."""
    position, path = len(uses) - 1, [len(uses) - 1]
    while not bits.mask(uses[position].extracts) & bit:
        for edge in uses[position].inputs:
            below = next((b for b in _single_bits(required[edge.source]) if bits.lower(edge, b) & bit), 0)
            if below:
                position, bit = edge.source, below
                path.append(position)
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
        read = set(chain.from_iterable({use.extracts for use in uses} | {use.optional for use in uses})) | set(root)
        put = set(chain.from_iterable({edge.injects | edge.modifies for use in uses for edge in use.inputs}))
        # One level more than anyone reads: what a caller pushes onto the deepest level is held, and then dropped.
        depth = max((level for _, level in read), default=0) + 2
        self._first: dict[str, int] = {}
        self._levels: list[FeatureLevel] = []
        self._lane: dict[str, int] = {}
        for name in sorted({feature for feature, _ in read} | put):
            width = depth if feature_named(name).stack else 1
            self._first[name] = len(self._levels)
            self._lane[name] = ((1 << width) - 1) << len(self._levels)
            self._levels.extend(FeatureLevel(name, level) for level in range(width))
        self._masks: dict[Collection[FeatureLevel], int] = {}
        self._texts: dict[int, tuple[FeatureLevel, ...]] = {0: ()}
        self._sets: dict[int, frozenset[FeatureLevel]] = {}

    def mask(self, features: Collection[FeatureLevel]) -> int:
        known = self._masks.get(features) if features.__class__ is frozenset else None
        if known is None:
            known = 0
            for name, level in features:
                known |= 1 << (self._first[name] + level)
            if isinstance(features, frozenset):
                self._masks[features] = known
        return known

    def features(self, mask: int) -> tuple[FeatureLevel, ...]:
        known = self._texts.get(mask)
        if known is None:
            known = tuple([self._levels[bit.bit_length() - 1] for bit in _single_bits(mask)])
            self._texts[mask] = known
        return known

    def feature_set(self, mask: int) -> frozenset[FeatureLevel]:
        known = self._sets.get(mask)
        if known is None:
            known = self._sets[mask] = frozenset(self.features(mask))
        return known

    def lower(self, edge: InputUse, mask: int) -> int:
        """What the caller needs so that `mask` is there behind the edge."""
        for name in edge.injects:
            lane = self._lane[name]
            # Level 0 is what is injected; deeper levels are the caller's own, one level up. Others have level 0 only.
            mask = (mask & ~lane) | ((mask & lane) >> 1 & lane)
        for name in edge.modifies:
            lane, lowest = self._lane[name], 1 << self._first[name]
            mask = (mask & ~lane) | ((mask & lane) >> 1 & lane) | (mask & lowest)
        return mask

    def raised(self, edge: InputUse, mask: int) -> int:
        """What there is behind the edge when the caller has `mask`."""
        for name in edge.modifies:
            lane, lowest = self._lane[name], 1 << self._first[name]
            mask = (mask & ~lane) | ((mask & lane) << 1 & lane) | (mask & lowest)
        for name in edge.injects:
            lane = self._lane[name]
            mask = (mask & ~lane) | ((mask & lane) << 1 & lane) | 1 << self._first[name]
        return mask

    def injected(self, edge: InputUse) -> int:
        mask = 0
        for name in chain(edge.injects, edge.modifies):
            mask |= 1 << self._first[name]
        return mask
