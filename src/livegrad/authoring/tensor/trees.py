"""Nests of dicts, lists, tuples and data classes taken apart into leaves and put together again.

Transforms, control flow and optimizers take any nest of tensors as one value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from livegrad.diagnostics import UsageError, caller_origin

# What is left of a nest without its leaves: hashable, so that it can be part of a signature.
Structure = tuple[Any, ...] | None
_LEAF: Structure = None


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves of a nest in order, and its structure. None has no leaves.

    >>> flatten({"w": [1, 2], "b": (3, None)})[0]
    [1, 2, 3]
    """
    leaves: list[Any] = []
    return leaves, _take_apart(tree, leaves)


# Classes that are leaves for certain: most leaves are told at a glance.
LEAF_CLASSES: set[type] = {bool, int, float, complex, str}


def _take_apart(tree: Any, leaves: list[Any]) -> Structure:
    kind = tree.__class__
    if kind in LEAF_CLASSES:
        leaves.append(tree)
        return _LEAF
    if kind is tuple or kind is list:
        return (kind, None, *[_take_apart(item, leaves) for item in tree])
    if tree is None:
        return (None,)
    if kind is dict:
        return (dict, tuple(tree), *[_take_apart(item, leaves) for item in tree.values()])
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return (kind, None, *[_take_apart(item, leaves) for item in tree])
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = tuple(field.name for field in dataclasses.fields(tree))
        return (kind, names, *[_take_apart(getattr(tree, name), leaves) for name in names])
    leaves.append(tree)
    return _LEAF


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """The nest of this structure with these leaves.

    >>> leaves, structure = flatten({"w": [1, 2], "b": 3})
    >>> unflatten(structure, [10 * leaf for leaf in leaves])
    {'w': [10, 20], 'b': 30}
    """
    return _put_together(structure, iter(leaves))


def _put_together(structure: Structure, leaves: Iterator[Any]) -> Any:
    if structure is None:
        return next(leaves)
    if structure == (None,):
        return None
    kind, names, *children = structure
    parts = [_put_together(child, leaves) for child in children]
    if kind is dict:
        return dict(zip(names, parts, strict=True))
    if names is not None:
        return kind(**dict(zip(names, parts, strict=True)))
    return kind(parts) if kind in (list, tuple) else kind(*parts)


def tree_map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """The nest with `function` applied to each leaf, together with the leaves of further nests at the same place.

    >>> tree_map(lambda a, b: a + b, {"x": 1, "y": 2}, {"x": 10, "y": 20})
    {'x': 11, 'y': 22}
    """
    leaves, structure = flatten(tree)
    columns = [leaves]
    for other in others:
        more, found = flatten(other)
        if found != structure:
            raise UsageError("nests of different structure", where=caller_origin(), help="give them the same keys")
        columns.append(more)
    return unflatten(structure, [function(*row) for row in zip(*columns, strict=True)])
