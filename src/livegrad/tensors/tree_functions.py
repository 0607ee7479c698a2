"""Functions on pytrees: their leaves, structures and paths, and one vector of all leaves.

Users call them with parameters, gradients and states; transforms use `pytrees.py` directly.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.tensors.creation import asarray, zeros
from livegrad.tensors.data_types import result_type
from livegrad.tensors.handle import Tensor
from livegrad.tensors.manipulation import concat, reshape
from livegrad.tensors.pytrees import IsLeaf, Structure, flatten, paths, show_structure, unflatten

Path = tuple[Any, ...]
_ABSENT: Any = object()


class TreeStructure:
    """The structure of a pytree: its containers, keys and static values, without its leaves.

    >>> import livegrad as lg
    >>> structure = lg.tree_structure({"w": [1.0, 2.0], "activation": "tanh"})
    >>> structure, structure.num_leaves, structure == lg.tree_structure({"w": [3.0, 4.0], "activation": "tanh"})
    (TreeStructure({'activation': 'tanh', 'w': [*, *]}), 2, True)
    """

    __slots__ = ("_structure",)

    def __init__(self, structure: Structure) -> None:
        self._structure = structure

    @property
    def num_leaves(self) -> int:
        """The number of leaves."""
        return sum(1 for _ in paths(self._structure))

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Builds the pytree with this structure and these leaves."""
        values, count = list(leaves), self.num_leaves
        if len(values) != count:
            what, expected = "a pytree needs a value for each leaf", f"{count} values"
            raise UsageError(what, where=caller_origin(), expected=expected, found=str(len(values)))
        return unflatten(self._structure, values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeStructure) and self._structure == other._structure

    def __hash__(self) -> int:
        return hash(self._structure)

    def __repr__(self) -> str:
        return f"TreeStructure({show_structure(self._structure)})"


def tree_flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeStructure]:
    """Returns the leaves of a pytree in order, and its structure, from which `tree_unflatten` rebuilds it.

    Dicts are in the order of their sorted keys. None has no leaves. Strings, functions and static fields belong to the
    structure. A subtree for which `is_leaf` is true counts as one leaf.

    >>> import livegrad as lg
    >>> lg.tree_flatten({"w": [1.0, 2.0], "b": (3.0, None)})
    ([3.0, 1.0, 2.0], TreeStructure({'b': (*, None), 'w': [*, *]}))
    """
    leaves, structure = flatten(tree, is_leaf)
    return leaves, TreeStructure(structure)


def tree_unflatten(structure: TreeStructure, leaves: Iterable[Any]) -> Any:
    """Builds the pytree with a structure and leaves that `tree_flatten` returned.

    >>> import livegrad as lg
    >>> leaves, structure = lg.tree_flatten({"w": [1, 2], "b": 3})
    >>> lg.tree_unflatten(structure, [10 * leaf for leaf in leaves])
    {'w': [10, 20], 'b': 30}
    """
    if not isinstance(structure, TreeStructure):
        found, help = type(structure).__name__, "it comes first: tree_unflatten(structure, leaves)"
        raise UsageError("`tree_unflatten` takes a structure", where=caller_origin(), found=found, help=help)
    return structure.unflatten(leaves)


def tree_structure(tree: Any, is_leaf: IsLeaf = None) -> TreeStructure:
    """Returns the structure of a pytree: its containers, keys and static values.

    >>> import livegrad as lg
    >>> lg.tree_structure({"w": [1.0, 2.0], "b": 3.0})
    TreeStructure({'b': *, 'w': [*, *]})
    """
    return TreeStructure(flatten(tree, is_leaf)[1])


def tree_leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """Returns the leaves of a pytree in order.

    >>> import livegrad as lg
    >>> lg.tree_leaves({"w": [1.0, 2.0], "b": 3.0})
    [3.0, 1.0, 2.0]
    """
    return flatten(tree, is_leaf)[0]


def tree_map(function: Callable[..., Any], tree: Any, *other_trees: Any, is_leaf: IsLeaf = None) -> Any:
    """Applies `function` to each leaf of a pytree, together with the corresponding leaves of other pytrees.

    >>> import livegrad as lg
    >>> lg.tree_map(lambda a, b: a + b, {"x": 1, "y": 2}, {"x": 10, "y": 20})
    {'x': 11, 'y': 22}
    """
    structure, rows = _rows(tree, other_trees, is_leaf)
    return unflatten(structure, [function(*row) for row in rows])


def tree_map_with_path(function: Callable[..., Any], tree: Any, *other_trees: Any, is_leaf: IsLeaf = None) -> Any:
    """Like `tree_map`, but `function` gets the path of the leaf first: a tuple of keys, indices and field names.

    >>> import livegrad as lg
    >>> parameters = {"layers": [{"w": 1.0, "b": 2.0}]}
    >>> lg.tree_map_with_path(lambda path, value: 0.0 if path[-1] == "b" else value, parameters)
    {'layers': [{'w': 1.0, 'b': 0.0}]}
    >>> lg.tree_map_with_path(lambda path, value: path, parameters)
    {'layers': [{'w': ('layers', 0, 'w'), 'b': ('layers', 0, 'b')}]}
    """
    structure, rows = _rows(tree, other_trees, is_leaf)
    return unflatten(structure, [function(path, *row) for path, row in zip(paths(structure), rows, strict=True)])


def tree_reduce(function: Callable[[Any, Any], Any], tree: Any, initial: Any = _ABSENT, is_leaf: IsLeaf = None) -> Any:
    """Combines the leaves of a pytree in order, starting from `initial` if it is given.

    >>> import livegrad as lg
    >>> lg.tree_reduce(lambda total, leaf: total + leaf, {"w": [1.0, 2.0], "b": 3.0}, 0.0)
    6.0
    """
    leaves = flatten(tree, is_leaf)[0]
    if initial is not _ABSENT:
        return functools.reduce(function, leaves, initial)
    if not leaves:
        help = "give the value to start from: tree_reduce(function, tree, initial)"
        raise UsageError("`tree_reduce` has no leaves to combine", where=caller_origin(), help=help)
    return functools.reduce(function, leaves)


def ravel_pytree(tree: Any) -> tuple[Tensor, Callable[[Any], Any]]:
    """Returns a vector of the elements of all leaves, and the function that builds the pytree from such a vector.

    The vector has the common type of the leaves; each leaf gets its own type back.

    >>> import livegrad as lg
    >>> vector, unravel = lg.ravel_pytree({"w": lg.ones((2, 2)), "b": 3.0})
    >>> vector, unravel(2.0 * vector)["b"]
    (Tensor([3., 1., 1., 1., 1.], dtype=float32), Tensor(6., dtype=float32))
    """
    leaves, structure = flatten(tree)
    common = result_type(*leaves) if leaves else None
    tensors = [asarray(leaf, dtype=None if isinstance(leaf, Tensor) else _own_type(leaf, common)) for leaf in leaves]
    shapes = [tensor.shape for tensor in tensors]
    types = [tensor.dtype for tensor in tensors]
    parts = [reshape(tensor.astype(common), (-1,)) for tensor in tensors]
    vector = concat(parts) if parts else zeros((0,))
    count = vector.shape[0]

    def unravel(values: Any) -> Any:
        flat = asarray(values)
        if flat.shape != (count,):
            expected, found = f"a vector of {count} elements", f"shape {flat.shape}"
            raise UsageError("`unravel` takes another shape", where=caller_origin(), expected=expected, found=found)
        start, pieces = 0, []
        for shape, type, part in zip(shapes, types, parts, strict=True):
            stop = start + part.shape[0]
            pieces.append(reshape(flat[start:stop], shape).astype(type))
            start = stop
        return unflatten(structure, pieces)

    return vector, unravel


def _own_type(leaf: Any, common: Any) -> Any:
    """The type of a leaf that is no tensor: Python numbers have none of their own."""
    return common if leaf.__class__ in (int, float, complex) else None


def _rows(tree: Any, other_trees: tuple[Any, ...], is_leaf: IsLeaf) -> tuple[Structure, Iterator[tuple[Any, ...]]]:
    """The structure of a pytree, and its leaves beside the corresponding leaves of the others."""
    leaves, structure = flatten(tree, is_leaf)
    columns = [leaves]
    for other_tree in other_trees:
        other_leaves, other_structure = flatten(other_tree, is_leaf)
        if other_structure != structure:
            raise UsageError(
                "pytrees have different tree structures",
                where=caller_origin(),
                expected=show_structure(structure),
                found=show_structure(other_structure),
                help="give them the same keys",
            )
        columns.append(other_leaves)
    return structure, zip(*columns, strict=True)
