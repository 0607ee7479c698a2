"""Flattens and unflattens pytrees of dicts, lists, tuples, data classes, structs and registered classes.

Transforms, `jit`, control flow and optimizers accept any pytree of tensors. Strings, functions and static fields are no
leaves: they belong to the structure, like the keys of a dict.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from types import BuiltinFunctionType, FunctionType
from typing import Any

from livegrad.diagnostics import UsageError, caller_origin, shown
from livegrad.ir.types import Type

# A pytree without its leaves. Hashable, so that it can be part of a signature: None for a leaf, otherwise what rebuilds
# the container, the names of its children, and the structures of the children.
Structure = tuple[Any, ...] | None
_LEAF: Structure = None


class Static:
    """A value that belongs to the structure of a pytree or to the signature of a call, compared exactly."""

    __slots__ = ("key", "value")

    def __init__(self, value: Any) -> None:
        self.value = value.value if isinstance(value, Static) else value
        self.key = _exact_key(self.value)

    def __repr__(self) -> str:
        return repr(self.value)

    def __call__(self) -> Any:
        """Rebuilds the value, as other kinds of structure rebuild containers from their children."""
        return self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static) and self.key == other.key

    def __hash__(self) -> int:
        try:
            return hash(self.key)
        except TypeError:
            raise UsageError(
                "an argument of a compiled function must be a tensor or hashable",
                where=caller_origin(),
                found=type(self.value).__name__,
                help="pass tensors, numbers, or pytrees of them",
            ) from None


def _exact_key(value: Any) -> Any:
    """Returns a key that is equal only for values that a trace cannot distinguish.

    1, True and 1.0 have different keys, and so have 0.0 and -0.0.
    """
    if isinstance(value, tuple):
        return value.__class__, tuple(map(_exact_key, value))
    if isinstance(value, frozenset):
        return value.__class__, frozenset(map(_exact_key, value))
    if isinstance(value, float | complex):
        return value.__class__, repr(value)
    return value.__class__, value


class _Keys(tuple[Any, ...]):
    """The keys of a dict in leaf order, which decides equality, and in insertion order, for `unflatten`."""

    insertion_order: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class _Registration:
    """How objects of a registered class become children and a static value, and come back."""

    flatten: Callable[[Any], tuple[Iterable[Any], Hashable]]
    unflatten: Callable[[Any, tuple[Any, ...]], Any]


@dataclasses.dataclass(frozen=True)
class _Registered:
    """Rebuilds an object of a registered class with its static value."""

    kind: type
    static: Static

    def __call__(self, *children: Any) -> Any:
        return _registered[self.kind].unflatten(self.static.value, children)


@dataclasses.dataclass(frozen=True)
class _DefaultDict:
    """Rebuilds a `defaultdict` with its factory."""

    factory: Any

    def __call__(self, items: Iterable[tuple[Any, Any]]) -> defaultdict[Any, Any]:
        return defaultdict(self.factory, items)


IsLeaf = Callable[[Any], object] | None

# Classes that are always leaves, for a fast check.
LEAF_CLASSES: set[type] = {bool, int, float, complex}
_STATIC_CLASSES = frozenset({str, bytes, FunctionType, BuiltinFunctionType, type})
_registered: dict[type, _Registration] = {}


def flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], Structure]:
    """Returns the leaves of a pytree in order, and its structure. None has no leaves; dicts are in key order.

    >>> flatten({"w": [1, 2], "b": (3, None)})[0]
    [3, 1, 2]
    """
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves, is_leaf)


def _flatten(tree: Any, leaves: list[Any], is_leaf: IsLeaf) -> Structure:
    kind = tree.__class__
    if kind in LEAF_CLASSES or (is_leaf is not None and is_leaf(tree)):
        leaves.append(tree)
        return _LEAF
    if kind is tuple or kind is list:
        return (kind, None, *[_flatten(item, leaves, is_leaf) for item in tree])
    if tree is None:
        return (None,)
    if kind in _STATIC_CLASSES:
        return (Static(tree), None)
    if kind in _registered:
        children, static = _parts_of(tree)
        return (_Registered(kind, Static(static)), None, *[_flatten(item, leaves, is_leaf) for item in children])
    if isinstance(tree, dict) and kind in (dict, OrderedDict, defaultdict):
        keys = dict_keys(tree)
        container = _DefaultDict(tree.default_factory) if isinstance(tree, defaultdict) else kind
        return (container, keys, *[_flatten(tree[key], leaves, is_leaf) for key in keys])
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return (kind, None, *[_flatten(item, leaves, is_leaf) for item in tree])
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type | Type):  # `f32` is one value
        fields = dataclasses.fields(tree)
        parts = [_flatten_field(tree, field, leaves, is_leaf) for field in fields]
        return (kind, tuple(field.name for field in fields), *parts)
    parts_of = getattr(kind, "__livegrad_parts__", None)
    if parts_of is not None:
        container, names = parts_of(tree)
        return (container, names, *[_flatten(getattr(tree, name), leaves, is_leaf) for name in names])
    leaves.append(tree)
    return _LEAF


def _flatten_field(tree: Any, field: dataclasses.Field[Any], leaves: list[Any], is_leaf: IsLeaf) -> Structure:
    value = getattr(tree, field.name)
    if not field.metadata.get("static"):
        return _flatten(value, leaves, is_leaf)
    if hasattr(value, "__array__") or not isinstance(value, Hashable):
        raise UsageError(
            f"the static field `{field.name}` of `{type(tree).__name__}` must be hashable",
            where=caller_origin(),
            found=shown(value),
            help="use a number, a string, a tuple or a frozen data class, or an ordinary field for data",
        )
    return (Static(value), None)


def static_field(**options: Any) -> Any:
    """A field of a data class that belongs to the structure of its pytrees: no transform traces or changes it.

    Takes the arguments of `dataclasses.field`. The value must be hashable; `jit` traces again for another value.

    >>> import livegrad as lg
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Power:
    ...     scale: lg.Tensor
    ...     exponent: int = lg.static_field(default=2)
    >>> lg.grad(lambda f: sum(f.scale for _ in range(f.exponent)))(Power(lg.asarray(3.0)))
    Power(scale=Tensor(2., dtype=float32), exponent=2)
    """
    options["metadata"] = {**options.get("metadata", {}), "static": True}
    return dataclasses.field(**options)


def register_pytree(
    kind: type,
    flatten: Callable[[Any], tuple[Iterable[Any], Hashable]],
    unflatten: Callable[[Any, tuple[Any, ...]], Any],
) -> None:
    """Makes objects of a class pytrees. Data classes and named tuples are pytrees without it.

    `flatten(object)` returns the children and a static, hashable value; `unflatten(static, children)` builds an object.
    It applies to this class, and not to classes derived from it.

    >>> import livegrad as lg
    >>> class Line:
    ...     def __init__(self, start, end, name):
    ...         self.start, self.end, self.name = start, end, name
    >>> lg.register_pytree(
    ...     Line, lambda line: ((line.start, line.end), line.name), lambda name, ends: Line(*ends, name)
    ... )
    >>> lg.tree_leaves(Line(1.0, 2.0, "edge")), lg.tree_map(lambda x: 2 * x, Line(1.0, 2.0, "edge")).end
    ([1.0, 2.0], 4.0)
    """
    if not isinstance(kind, type):
        found = shown(kind)
        raise UsageError("`register_pytree` takes a class", where=caller_origin(), found=found, help="pass type(x)")
    if kind in LEAF_CLASSES | _STATIC_CLASSES | {tuple, list, dict, OrderedDict, defaultdict, type(None)}:
        raise UsageError(f"`{kind.__name__}` already has a meaning in pytrees", where=caller_origin())
    if kind in _registered:
        what = f"`{kind.__name__}` is registered already"
        raise UsageError(what, where=caller_origin(), help="register a class once, where it is defined")
    _registered[kind] = _Registration(flatten, unflatten)


def _parts_of(tree: Any) -> tuple[Iterable[Any], Hashable]:
    """The children and the static value of an object of a registered class."""
    parts = _registered[tree.__class__].flatten(tree)
    if isinstance(parts, tuple) and len(parts) == 2 and isinstance(parts[0], Iterable):
        return parts
    raise UsageError(
        f"the registered `flatten` of `{tree.__class__.__name__}` returns something else",
        where=caller_origin(),
        expected="a tuple (children, static value)",
        found=shown(parts),
    )


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


def is_leaf(tree: Any) -> bool:
    """Whether a value is a leaf, and no container.

    >>> is_leaf(1.0), is_leaf([1.0])
    (True, False)
    """
    return flatten(tree, lambda part: part is not tree)[1] is None


def data_children(tree: Any) -> tuple[Iterable[Any], list[Any]]:
    """The names or indices of a container's children, and the children; static fields are left out.

    >>> data_children({"w": [1, 2], "name": "dense"})
    (('name', 'w'), ['dense', [1, 2]])
    """
    children, structure = flatten(tree, lambda part: part is not tree)
    assert structure is not None
    names = tuple(name for name, child in _named_children(structure) if child is None)
    return (range(len(children)) if _names_of(structure) is None else names), children


def paths(structure: Structure, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each leaf, in order: a tuple of keys, indices and field names.

    >>> list(paths(flatten({"w": [1, 2], "b": 3})[1]))
    [('b',), ('w', 0), ('w', 1)]
    """
    if structure is None:
        yield path
        return
    for name, child in _named_children(structure):
        yield from paths(child, (*path, name))


def _named_children(structure: tuple[Any, ...]) -> Iterator[tuple[Any, Structure]]:
    names = _names_of(structure)
    children = structure[2:]
    return zip(range(len(children)) if names is None else names, children, strict=True)


def _names_of(structure: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The keys or field names of a container's children; None where they only have indices."""
    if structure[1:] and structure[1] is not None:
        return structure[1]
    return getattr(structure[0], "_fields", None)  # of a named tuple


def show_path(path: tuple[Any, ...]) -> str:
    """Writes a path for messages.

    >>> show_path(("layers", 0, "w"))
    "['layers'][0]['w']"
    """
    return "".join(f"[{name!r}]" for name in path) or "value"


def show_structure(structure: Structure) -> str:
    """Writes a structure as Python would, with a star for each leaf.

    >>> show_structure(flatten({"w": [1, 2], "b": (3,), "name": "dense"})[1])
    "{'b': (*,), 'name': 'dense', 'w': [*, *]}"
    """
    if structure is None:
        return "*"
    kind, *rest = structure
    if kind is None or isinstance(kind, Static):
        return repr(kind)
    parts = [show_structure(child) for child in rest[1:]]
    if kind is list:
        return f"[{', '.join(parts)}]"
    if kind is tuple:
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    names = _names_of(structure)
    if isinstance(names, _Keys):
        return f"{{{', '.join(f'{name!r}: {part}' for name, part in zip(names, parts, strict=True))}}}"
    if names is not None:
        parts = [f"{name}={part}" for name, part in zip(names, parts, strict=True)]
    owner = kind.kind if isinstance(kind, _Registered) else kind
    return f"{getattr(owner, '__name__', repr(owner))}({', '.join(parts)})"
