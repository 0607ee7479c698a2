"""Flattens and unflattens pytrees of dicts, lists, tuples, data classes and structs.

Transforms, `jit`, control flow and optimizers accept any pytree of tensors.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.types import Type

# A pytree without its leaves. Hashable, so that it can be part of a signature.
Structure = tuple[Any, ...] | None
_LEAF: Structure = None


class _Keys(tuple[Any, ...]):
    """The keys of a dict in leaf order, which decides equality, and in insertion order, for `unflatten`."""

    insertion_order: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class _DefaultDict:
    """Rebuilds a `defaultdict` with its factory."""

    factory: Any

    def __call__(self, items: Iterable[tuple[Any, Any]]) -> defaultdict[Any, Any]:
        return defaultdict(self.factory, items)


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """Returns the leaves of a pytree in order, and its structure. None has no leaves; dicts are in key order.

    >>> flatten({"w": [1, 2], "b": (3, None)})[0]
    [3, 1, 2]
    """
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves)


# Classes that are always leaves, for a fast check.
LEAF_CLASSES: set[type] = {bool, int, float, complex, str}


def _flatten(tree: Any, leaves: list[Any]) -> Structure:
    kind = tree.__class__
    if kind in LEAF_CLASSES:
        leaves.append(tree)
        return _LEAF
    if kind is tuple or kind is list:
        return (kind, None, *[_flatten(item, leaves) for item in tree])
    if tree is None:
        return (None,)
    if isinstance(tree, dict) and kind in (dict, OrderedDict, defaultdict):
        keys = dict_keys(tree)
        container = _DefaultDict(tree.default_factory) if isinstance(tree, defaultdict) else kind
        return (container, keys, *[_flatten(tree[key], leaves) for key in keys])
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return (kind, None, *[_flatten(item, leaves) for item in tree])
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type | Type):  # `f32` is one value
        names = tuple(field.name for field in dataclasses.fields(tree))
        return (kind, names, *[_flatten(getattr(tree, name), leaves) for name in names])
    parts = getattr(kind, "__livegrad_parts__", None)
    if parts is not None:
        container, names = parts(tree)
        return (container, names, *[_flatten(getattr(tree, name), leaves) for name in names])
    leaves.append(tree)
    return _LEAF


def dict_keys(tree: dict[Any, Any]) -> _Keys:
    """Returns the keys of a dict in leaf order: sorted, so that dicts with the same keys have the same structure.

    >>> list(dict_keys({"w": 1, "b": 2}))
    ['b', 'w']
    """
    insertion_order = tuple(tree)
    try:
        keys = _Keys(insertion_order if isinstance(tree, OrderedDict) else sorted(insertion_order))
    except TypeError:  # keys of different kinds
        keys = _Keys(insertion_order)
    keys.insertion_order = insertion_order
    return keys


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """Builds the pytree with this structure and these leaves.

    >>> leaves, structure = flatten({"w": [1, 2], "b": 3})
    >>> unflatten(structure, [10 * leaf for leaf in leaves])
    {'w': [10, 20], 'b': 30}
    """
    return _unflatten(structure, iter(leaves))


def _unflatten(structure: Structure, leaves: Iterator[Any]) -> Any:
    if structure is None:
        return next(leaves)
    if structure == (None,):
        return None
    kind, names, *children = structure
    parts = [_unflatten(child, leaves) for child in children]
    if isinstance(names, _Keys):
        members = dict(zip(names, parts, strict=True))
        return kind((key, members[key]) for key in names.insertion_order)
    if names is not None:
        members = dict(zip(names, parts, strict=True))
        return _data_class(kind, members) if dataclasses.is_dataclass(kind) else kind(**members)
    return kind(parts) if kind in (list, tuple) else kind(*parts)


def _data_class(kind: Any, parts: dict[str, Any]) -> Any:
    """Creates an instance of a data class; fields that the constructor does not accept are set directly."""
    init_fields = {field.name for field in dataclasses.fields(kind) if field.init}
    instance = kind(**{name: part for name, part in parts.items() if name in init_fields})
    for name in parts.keys() - init_fields:
        object.__setattr__(instance, name, parts[name])
    return instance


def tree_map(function: Callable[..., Any], tree: Any, *other_trees: Any) -> Any:
    """Applies `function` to each leaf of a pytree, together with the corresponding leaves of other pytrees.

    >>> tree_map(lambda a, b: a + b, {"x": 1, "y": 2}, {"x": 10, "y": 20})
    {'x': 11, 'y': 22}
    """
    leaves, structure = flatten(tree)
    columns = [leaves]
    for other_tree in other_trees:
        other_leaves, other_structure = flatten(other_tree)
        if other_structure != structure:
            raise UsageError(
                "pytrees have different tree structures", where=caller_origin(), help="give them the same keys"
            )
        columns.append(other_leaves)
    return unflatten(structure, [function(*row) for row in zip(*columns, strict=True)])
