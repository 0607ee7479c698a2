"""Nodes and functions of the value IR: pure, immutable, interned, so that the same expression is the same object.

Ops make nodes through `make_node`; passes read them and make new ones. Origins stand beside a node and never take
part in its identity.
"""

from __future__ import annotations

import os
import struct
import threading
import weakref
from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from livegrad.diagnostics import Place, UsageError, caller_origin, caller_origins
from livegrad.ir.dimension import Dimension
from livegrad.ir.drawing import Box, draw_graph
from livegrad.ir.types import Tuple, Type

if TYPE_CHECKING:
    from livegrad.ir.op import Op

Attribute = Any  # int, float, complex, bool, str, None, Type, Dimension, Function, Key, or a tuple of those
_MOST_ORIGINS = 8


class Key:
    """The identity of a leaf whose value is given from outside: a live parameter, a buffer, an open input."""

    __slots__ = ("__weakref__", "name")

    def __init__(self, name: str = "") -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<key {self.name or hex(id(self))}>"


class Node:
    """One value: an op applied to operands under attributes. Its type is always derived by the op.

    >>> import livegrad as lg
    >>> f = lg.trace(lambda x: lg.ops.sin(x) * x, lg.f32)
    >>> (node,) = f.results
    >>> node, node.operands
    (<mul: f32>, (<sin: f32>, <parameter: f32>))
    """

    __slots__ = ("__weakref__", "attributes", "cell", "op", "operands", "origins", "type")
    op: Op
    operands: tuple[Node, ...]
    attributes: tuple[tuple[str, Attribute], ...]
    type: Type
    origins: tuple[Place, ...]
    cell: Any  # what the engine keeps beside the node: its value, once somebody has asked for it

    def __init__(self) -> None:
        raise UsageError("a Node is made by calling an op", help="write add(x, y), or x + y")

    def attribute(self, name: str) -> Attribute:
        for key, value in self.attributes:
            if key == name:
                return value
        raise KeyError(f"{self.op.name} has no attribute {name}")

    @property
    def origin(self) -> Place | None:
        return self.origins[0] if self.origins else None

    def __repr__(self) -> str:
        return f"<{self.op.name}: {self.type}>"

    def __copy__(self) -> Node:
        return self

    def __deepcopy__(self, memo: object) -> Node:
        return self

    def __bool__(self) -> bool:
        raise UsageError(
            "a node has no truth value yet: it is computed when the function runs",
            where=caller_origin(),
            help="use select(condition, a, b) or cond(...) instead of `if`",
        )

    # The arithmetic of Python, by the op of that name; literals become constants of the other operand's type.
    def _binary(self, name: str, other: Any, swapped: bool = False) -> Node:
        op = self.op.table[name]
        return op(other, self) if swapped else op(self, other)

    def __add__(self, other: Any) -> Node:
        return self._binary("add", other)

    def __radd__(self, other: Any) -> Node:
        return self._binary("add", other, True)

    def __sub__(self, other: Any) -> Node:
        return self._binary("sub", other)

    def __rsub__(self, other: Any) -> Node:
        return self._binary("sub", other, True)

    def __mul__(self, other: Any) -> Node:
        return self._binary("mul", other)

    def __rmul__(self, other: Any) -> Node:
        return self._binary("mul", other, True)

    def __truediv__(self, other: Any) -> Node:
        return self._binary("div", other)

    def __rtruediv__(self, other: Any) -> Node:
        return self._binary("div", other, True)

    def __floordiv__(self, other: Any) -> Node:
        return self._binary("floor_div", other)

    def __rfloordiv__(self, other: Any) -> Node:
        return self._binary("floor_div", other, True)

    def __mod__(self, other: Any) -> Node:
        return self._binary("mod", other)

    def __rmod__(self, other: Any) -> Node:
        return self._binary("mod", other, True)

    def __pow__(self, other: Any) -> Node:
        return self._binary("pow", other)

    def __rpow__(self, other: Any) -> Node:
        return self._binary("pow", other, True)

    def __and__(self, other: Any) -> Node:
        return self._binary("bit_and", other)

    def __or__(self, other: Any) -> Node:
        return self._binary("bit_or", other)

    def __xor__(self, other: Any) -> Node:
        return self._binary("bit_xor", other)

    # `&`, `|` and `^` give the same whichever side the literal stands on.
    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __lt__(self, other: Any) -> Node:
        return self._binary("less", other)

    def __le__(self, other: Any) -> Node:
        return self._binary("less_equal", other)

    def __gt__(self, other: Any) -> Node:
        return self._binary("greater", other)

    def __ge__(self, other: Any) -> Node:
        return self._binary("greater_equal", other)

    def __neg__(self) -> Node:
        return self.op.named("neg")(self)

    def __abs__(self) -> Node:
        return self.op.named("abs")(self)

    def __invert__(self) -> Node:
        return self.op.named("bit_not")(self)


class _Entry(weakref.ref[Node]):
    """A weak reference that knows its place in the table."""

    __slots__ = ("key",)
    key: tuple[Any, ...]


_table: dict[tuple[Any, ...], _Entry] = {}
_table_lock = threading.RLock()  # a collection inside may run code that makes nodes


def _renew_lock() -> None:
    global _table_lock
    _table_lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    # Another thread of the parent may have held it; that thread is not in the child.
    os.register_at_fork(after_in_child=_renew_lock)
# Callbacks run at any moment, also while the lock is held: they only append here, and `make_node` clears up.
_dead: deque[_Entry] = deque()


class _Ambient(threading.local):
    """What new nodes stand for on this thread; None: the calling line."""

    origins: tuple[Place, ...] | None = None


_ambient = _Ambient()


def make_node(op: Op, operands: tuple[Node, ...], attributes: tuple[tuple[str, Attribute], ...] = ()) -> Node:
    """The one node with this op, operands and attributes; attributes come sorted by name."""
    key = (op, *map(id, operands), attribute_key(attributes)) if attributes else (op, *map(id, operands))
    origins = _ambient.origins
    rewriting = origins is not None
    if origins is None:
        origins = caller_origins()
    entry = _table.get(key)
    node = entry() if entry is not None else None
    if node is None:
        node = _insert(key, _fresh(op, operands, attributes, origins))
    if origins and node.origins is not origins:
        # A pass at work on a function puts that function's places before those of others that share the node.
        add_origins(node, origins, first=rewriting)
    if attributes and node.attributes is not attributes:
        _refresh_places(node.attributes, attributes)
    return node


def make_unique_node(op: Op, attributes: tuple[tuple[str, Attribute], ...], type: Type) -> Node:
    """A node without operands that no other can equal, because an attribute is its own: it need not be interned."""
    node = object.__new__(Node)
    node.op, node.operands, node.attributes, node.type, node.cell = op, (), attributes, type, None
    node.origins = caller_origins() if _ambient.origins is None else _ambient.origins
    return node


def _refresh_places(known: tuple[Attribute, ...], fresh: tuple[Attribute, ...]) -> None:
    """Equal functions are one attribute; it learns the places of the one that was written last."""
    for old, new in zip(known, fresh, strict=True):
        if old.__class__ is tuple:
            _refresh_places(old, new)
        elif old.__class__ is Function and old is not new:
            old.places.update(new.places)


def _fresh(op: Op, operands: tuple[Node, ...], attributes: Any, origins: tuple[Place, ...]) -> Node:
    node = object.__new__(Node)
    node.op, node.operands, node.attributes, node.origins, node.cell = op, operands, attributes, origins, None
    node.type = op.derive_type(operands, attributes, origins)
    return node


def _insert(key: tuple[Any, ...], fresh: Node) -> Node:
    with _table_lock:
        while _dead:
            gone = _dead.popleft()
            if _table.get(gone.key) is gone:
                del _table[gone.key]
            del gone  # its key may hold a function alive, whose nodes are to follow in this loop
        entry = _table.get(key)
        node = entry() if entry is not None else None
        if node is not None:
            return node
        entry = _Entry(fresh, _dead.append)
        entry.key = key
        _table[key] = entry
        return fresh


def add_origins(node: Node, origins: tuple[Place, ...], *, first: bool = False) -> None:
    """Records more places that a node stands for, after those it has or before them; eight are kept."""
    known = node.origins
    if known is origins or (known[: len(origins)] == origins if first else len(known) >= _MOST_ORIGINS):
        return
    front, back = (origins, known) if first else (known, origins)
    node.origins = (front + tuple(place for place in back if place not in front))[:_MOST_ORIGINS]


class originating_from:
    """Nodes made inside stand for these places instead of for the calling line; `move_to` changes the places."""

    __slots__ = ("_before", "_origins")

    def __init__(self, origins: tuple[Place, ...]) -> None:
        self._origins = origins

    def __enter__(self) -> originating_from:
        self._before = _ambient.origins
        _ambient.origins = self._origins
        return self

    def move_to(self, origins: tuple[Place, ...]) -> None:
        _ambient.origins = origins

    def __exit__(self, *exception: object) -> None:
        _ambient.origins = self._before


def live_node_count() -> int:
    """How many nodes are alive: for tests of memory."""
    return sum(entry() is not None for entry in list(_table.values()))


def attribute_key(value: Attribute) -> Any:
    """Attributes are the same only when type and bits are: 1 is not True, 0.0 is not -0.0, NaN is itself."""
    kind = value.__class__
    if kind is int or kind is str:
        return kind, value
    if isinstance(value, tuple):
        for item in value:
            if item.__class__ is not int:
                return tuple(map(attribute_key, value))
        return "integers", value
    if isinstance(value, float):
        return "float", struct.pack("<d", value)
    if isinstance(value, complex):
        return "complex", struct.pack("<dd", value.real, value.imag)
    if value is None or isinstance(value, bool | int | str | Type | Dimension | Function | Key):
        return value.__class__, value
    raise UsageError(f"{value!r} cannot be an attribute", expected="a number, string, type, function or tuple of those")


@dataclass(frozen=True, eq=False)
class Function:
    """A closed function: parameters by position, results, and a name that is no part of its identity.

    Make one with `livegrad.ir.function.make_function`, which checks that it is closed.

    >>> import livegrad as lg
    >>> f = lg.trace(lambda x, y: x * y, lg.f32, lg.f32)
    >>> f.parameter_types, f.result_type
    ((f32, f32), f32)
    """

    name: str
    parameters: tuple[Node, ...]
    results: tuple[Node, ...]

    @cached_property
    def places(self) -> dict[Node, tuple[Place, ...]]:
        """Where this function's nodes (and those of functions inside) were written; no part of its identity.

        A node may be shared with other functions, and so tell of other places: this table tells them apart.
        """
        return {}

    @cached_property
    def _key(self) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
        return self.parameters, self.results

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Function) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    @property
    def parameter_types(self) -> tuple[Type, ...]:
        return tuple(parameter.type for parameter in self.parameters)

    @property
    def result_types(self) -> tuple[Type, ...]:
        return tuple(result.type for result in self.results)

    @property
    def result_type(self) -> Type:
        """What a call gives: the only result's type, or a tuple of all."""
        return self.result_types[0] if len(self.results) == 1 else Tuple(self.result_types)

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.parameter_types))
        return f"<function {self.name}({inputs}) -> {self.result_type}>"

    def to_svg(self) -> str:
        """The nodes as a picture: parameters blue, results orange; functions inside (of a loop, say) are one box."""
        inside: dict[Node, str] = {}
        stack = list(reversed(self.results))
        while stack:
            node = stack.pop()
            if node not in inside:
                inside[node] = f"n{len(inside)}"
                stack.extend(reversed(node.operands))
        boxes = [Box(key, (_label(node), str(node.type)), self._kind_of(node)) for node, key in inside.items()]
        edges = [(inside[operand], key) for node, key in inside.items() for operand in node.operands]
        return draw_graph(boxes, edges, self.name)

    def _kind_of(self, node: Node) -> str:
        return "leaf" if node in self.parameters else "result" if node in self.results else "plain"

    def _repr_svg_(self) -> str:
        return self.to_svg()


def _label(node: Node) -> str:
    return str(node.attribute("value")) if node.op.name == "constant" else node.op.name


@dataclass(frozen=True)
class Module:
    """Named functions; what passes take and give. Functions that these call are reached through them."""

    functions: tuple[Function, ...]

    def function(self, name: str) -> Function:
        for function in self.functions:
            if function.name == name:
                return function
        raise UsageError(f"no function `{name}`", expected="one of " + ", ".join(f.name for f in self.functions))
