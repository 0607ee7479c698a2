"""Reads features of an evaluation context inside functions: names, stack levels and the leaf op.

A traced function that calls `context("animation_time")` contains a keyed input for it. `feature_leaves` finds the
features that a function reads, so they need no declaration.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.leaves import input_node, input_op
from livegrad.ir.node import Key, Node
from livegrad.ir.types import Type, Vector, f32, f64, i64
from livegrad.ir.walk import toposort


@dataclass(frozen=True)
class Feature:
    """A named part of a context. A stack has levels: each loop pushes one, and `index@1` is the enclosing loop's.

    `type` is the default type of `context(name)` inside a livegrad function.
    """

    name: str
    stack: bool = False
    type: Type | None = None


class FeatureLevel(NamedTuple):
    """A feature at a level of its stack. Features that are not stacks only have level 0.

    >>> str(FeatureLevel("index", 1)), str(FeatureLevel("footprint"))
    ('index@1', 'footprint')
    """

    feature: str
    level: int = 0

    def __str__(self) -> str:
        return f"{self.feature}@{self.level}" if self.level else self.feature


_features: dict[str, Feature] = {}


def register_feature(name: str, *, stack: bool = False, type: Type | None = None) -> Feature:
    """Registers a feature of contexts. Registering it again with the same settings has no effect.

    >>> register_feature("wind_speed", type=f32)
    Feature(name='wind_speed', stack=False, type=f32)
    """
    if not name.isidentifier():
        raise UsageError("a feature's name must be an identifier", where=caller_origin(), found=repr(name))
    feature = Feature(name, stack, type)
    registered = _features.setdefault(name, feature)
    if registered != feature:
        raise UsageError(f"feature `{name}` is registered differently", expected=repr(registered), found=repr(feature))
    return registered


for _name, _stack, _type in (
    ("footprint", False, None),
    ("real_time", False, f64),
    ("animation_time", False, f32),
    ("pointer_position", False, Vector(f32, 2)),
    ("position", False, None),
    ("index", True, i64),
    ("varargs", True, None),
):
    register_feature(_name, stack=_stack, type=_type)


def feature_named(name: str) -> Feature:
    """Looks up a registered feature."""
    feature = _features.get(name)
    if feature is None:
        raise UsageError(
            f"there is no feature `{name}`",
            where=caller_origin(),
            expected="one of " + ", ".join(sorted(_features)),
            help=f'register it with register_feature("{name}")',
        )
    return feature


@lru_cache(maxsize=4096)
def parse_feature(text: str) -> FeatureLevel:
    """Parses a feature: `footprint` or `index@1`.

    >>> parse_feature("index@1")
    FeatureLevel(feature='index', level=1)
    """
    name, mark, level = text.partition("@")
    feature = feature_named(name)
    if mark and not level.isdecimal():
        raise UsageError(f"`{text}` is not a feature", where=caller_origin(), expected="a name, or name@level")
    if mark and int(level) and not feature.stack:
        raise UsageError(f"feature `{name}` is not a stack", where=caller_origin(), found=f"`{text}`")
    return FeatureLevel(name, int(level or 0))


class FeatureKey(Key):
    """The key of a leaf that reads a feature: one for each feature, level and type."""

    __slots__ = ("feature", "type")

    def __init__(self, feature: FeatureLevel, type: Type) -> None:
        super().__init__(str(feature))
        self.feature, self.type = feature, type

    def __reduce__(self) -> tuple[Any, ...]:
        return _key_of, (self.feature, self.type)


_keys: dict[tuple[FeatureLevel, Type], FeatureKey] = {}


def _key_of(feature: FeatureLevel, type: Type) -> FeatureKey:
    return _keys.setdefault((feature, type), FeatureKey(feature, type))


def context(feature: str, type: Type | None = None) -> Node:
    """Returns the value of a context feature inside a function.

    >>> context("animation_time").type
    f32
    >>> context("animation_time") is context("animation_time")
    True
    """
    level = parse_feature(feature)
    read_type = type if type is not None else feature_named(level.feature).type
    if read_type is None:
        raise UsageError(
            f"feature `{feature}` has no type of its own",
            where=caller_origin(),
            help=f'say which it is read as: context("{feature}", f32)',
        )
    return input_node(_key_of(level, read_type), read_type)


def feature_leaves(results: Iterable[Node]) -> tuple[Node, ...]:
    """The leaves that read features, below the results, in order of first use."""
    return tuple(n for n in toposort(results) if n.op is input_op and isinstance(n.attribute("key"), FeatureKey))


def feature_of(leaf: Node) -> FeatureLevel:
    """The feature that a leaf reads.

    >>> feature_of(context("index@1"))
    FeatureLevel(feature='index', level=1)
    """
    return leaf.attribute("key").feature
