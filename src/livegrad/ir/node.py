"""The nodes and functions of the value IR: pure, immutable and interned, so that equal expressions are the same object.

Ops create nodes through `make_node`; passes read nodes and create new ones. Source lines are not part of a node's
identity, with one exception: a node that may fail at run time is shared only with equal nodes on the same line.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from livegrad.diagnostics import SourceLocation, UsageError, caller_origin, caller_origins
from livegrad.ir.cached_property import cached_property
from livegrad.ir.dimension import Dimension
from livegrad.ir.drawing import draw_function
from livegrad.ir.interning import InternTable
from livegrad.ir.node_operators import NodeOperators
from livegrad.ir.source_lines import add_origins, ambient
from livegrad.ir.types import Tuple, Type

if TYPE_CHECKING:
    from livegrad.ir.op import Op

_new = object.__new__
_pack_double = struct.Struct("<d").pack
Attribute = Any  # int, float, complex, bool, str, None, Type, Dimension, Function, Key, or a tuple of those


class Key:
    """The identity of a leaf whose value the caller supplies: a live parameter, a buffer, an open input."""

    __slots__ = ("__weakref__", "name")

    def __init__(self, name: str = "") -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<key {self.name or hex(id(self))}>"

    def __reduce__(self) -> tuple[Any, ...]:
        help = "pickle the tensor that has the data, or a function of it"
        raise UsageError("a node that reads data cannot be pickled", where=caller_origin(), help=help)


class Node(NodeOperators):
    """A value: an op applied to operands, with attributes. The op determines its type.

    >>> import livegrad as lg
    >>> f = lg.ir.trace(lambda x: lg.ops.sin(x) * x, lg.f32)
    >>> (node,) = f.results
    >>> node, node.operands
    (<mul: f32>, (<sin: f32>, <parameter: f32>))
    """

    __slots__ = (
        "__weakref__",
        "attributes",
        "cell",
        "functions",
        "holder",
        "local_origins",
        "located",
        "op",
        "operands",
        "type",
    )
    op: Op
    operands: tuple[Node, ...]
    attributes: tuple[tuple[str, Attribute], ...]
    functions: tuple[Function, ...]  # those in its attributes, also inside tuples: loop bodies, branches, callees
    type: Type
    local_origins: tuple[SourceLocation, ...]  # the first of the user's lines that created it
    located: bool  # whether its line is part of its identity
    cell: Any  # the memo slot of lazy execution: the value, once it has been requested
    holder: Any  # a weak reference to its first tensor handle, for lazy execution

    def __init__(self) -> None:
        raise UsageError("nodes are created by calling ops", help="write add(x, y), or x + y")

    def attribute(self, name: str) -> Attribute:
        for key, value in self.attributes:
            if key == name:
                return value
        raise KeyError(f"{self.op.name} has no attribute {name}")

    @property
    def origins(self) -> tuple[SourceLocation, ...]:
        """The source lines of this node in the current function; outside of passes, the lines that created it."""
        table = ambient.table
        return self.local_origins if table is None or self.located else table.get(self, self.local_origins)

    @property
    def origin(self) -> SourceLocation | None:
        origins = self.origins
        return origins[0] if origins else None

    @property
    def may_fail(self) -> bool:
        """Whether evaluating this node can raise an error. Such nodes are not shared between lines."""
        return self.op.checked and self.op.can_fail(self.operands, self.attributes)

    def __repr__(self) -> str:
        return f"<{self.op.name}: {self.type}>"

    def __copy__(self) -> Node:
        return self

    def __deepcopy__(self, memo: object) -> Node:
        return self

    def __bool__(self) -> bool:
        raise UsageError(
            "a node cannot be used as a condition: it is computed when the function runs",
            where=caller_origin(),
            help="use select(condition, a, b) or cond(...) instead of `if`",
        )


_table: InternTable[Node] = InternTable()
_types: dict[tuple[Any, ...], tuple[Type, Type]] = {}  # derived types: (result type, operand type)
_MAX_TYPES = 4096


def make_node(
    op: Op, operands: tuple[Node, ...], attributes: tuple[tuple[str, Attribute], ...] = (), like: Node | None = None
) -> Node:
    """Returns the interned node with this op, operands and attributes, which must be sorted by name.

    Nodes that may fail are interned per source line, so that an error names the line that ran. `like`, a node with the
    same op, attributes and operand types, saves deriving the type again.
    """
    signature = attributes_key(attributes) if attributes else ()
    key = (op, *map(id, operands), signature) if attributes else (op, *map(id, operands))
    is_unset = ambient.is_unset
    origins = None if is_unset else ambient.origins
    from_user_line = origins is None
    if origins is None:
        origins = caller_origins(2)
    located = op.checked and op.can_fail(operands, attributes)
    if not is_unset and ambient.every_line and ambient.table is None and operands:
        located = True  # equal leaves are interchangeable
    if located:
        origins = origins[:1]
        key = (*key, *origins)
    entry = _table.get(key)
    node = entry() if entry is not None else None
    if node is None:
        node = _new(Node)
        node.op, node.operands, node.attributes, node.cell, node.holder = op, operands, attributes, None, None
        node.local_origins, node.located = origins, located
        if like is None:
            _set_type(node, signature)
        else:
            node.functions, node.type = like.functions, like.type
        node = _table.enter(key, node)
    if not is_unset and ambient.scope_nodes is not None:
        ambient.scope_nodes.add(node)
    if node.local_origins is not origins or not is_unset:
        add_origins(node, origins, first=from_user_line)
    if node.functions and node.attributes is not attributes:
        _refresh_locations(node.functions, _functions_among(attributes))
    return node


def _set_type(node: Node, signature: tuple[Any, ...]) -> None:
    """Sets the type of a new node and the functions in its attributes.

    A table of types saves calls of type rules. It has no entries for nodes with functions, which it would keep alive.
    """
    op, operands, attributes = node.op, node.operands, node.attributes
    if not attributes:
        node.functions, node.type = (), op.derive_type(operands, (), node.local_origins)
        return
    key = (op, signature, id(operands[0].type)) if len(operands) == 1 else None
    cached = None if key is None else _types.get(key)
    if cached is not None:
        node.functions, node.type = (), cached[0]
        return
    node.functions = _functions_among(attributes)
    node.type = op.derive_type(operands, attributes, node.local_origins)
    if key is not None and not node.functions:
        if len(_types) >= _MAX_TYPES:
            _types.clear()
        _types[key] = node.type, operands[0].type  # the operand type stays alive, because the key contains its id


def make_pair(op: Op, first: Node, second: Node, type: Type, origins: tuple[SourceLocation, ...]) -> Node:
    """`make_node(op, (first, second))` for an op that cannot fail, while `ambient` is unset: the fast path of `x + y`.

    The caller supplies the type of the result and the user's line.
    """
    key = (op, id(first), id(second))
    entry = _table.get(key)
    node = entry() if entry is not None else None
    if node is None:
        node = _new(Node)
        node.op, node.operands, node.attributes, node.functions = op, (first, second), (), ()
        node.cell, node.holder, node.local_origins, node.located, node.type = None, None, origins, False, type
        node = _table.enter(key, node)
    if node.local_origins is not origins:
        add_origins(node, origins, first=True)
    return node


def _key_of(op: Op, operands: tuple[Node, ...], attributes: tuple[tuple[str, Attribute], ...]) -> tuple[Any, ...]:
    if not attributes:
        return (op, *map(id, operands))
    return (op, *map(id, operands), attributes_key(attributes))


def attributes_key(attributes: tuple[tuple[str, Attribute], ...]) -> tuple[Any, ...]:
    """`attribute_key` for all attributes of a node; the attributes themselves if they are keys already."""
    for _, value in attributes:
        kind = value.__class__
        if kind in _plain_keys:
            continue
        if kind is not tuple:
            break
        for item in value:
            if item.__class__ is not int:
                break
        else:
            continue
        break
    else:
        return attributes  # the common case
    return tuple([(name, attribute_key(value)) for name, value in attributes])


def is_interned(node: Node) -> bool:
    """Whether a node is the object that `make_node` would return for its parts."""
    key = _key_of(node.op, node.operands, node.attributes)
    entry = _table.get((*key, *node.local_origins) if node.located else key)
    return entry is not None and entry() is node


def make_unique_node(op: Op, attributes: tuple[tuple[str, Attribute], ...], type: Type) -> Node:
    """A node without operands that cannot equal another, because an attribute is unique to it; it is not interned."""
    node = _new(Node)
    node.op, node.operands, node.attributes, node.functions = op, (), attributes, ()
    node.type, node.cell, node.holder, node.located = type, None, None, False
    origins = None if ambient.is_unset else ambient.origins
    node.local_origins = caller_origins(2) if origins is None else origins
    return node


def _refresh_locations(interned: tuple[Function, ...], fresh: tuple[Function, ...]) -> None:
    """Copies the source locations of new functions to the equal functions of an interned node: the newest lines win."""
    for old, new in zip(interned, fresh, strict=True):
        if old is not new:
            old.source_locations.update(new.source_locations)


def _functions_among(attributes: tuple[tuple[str, Attribute], ...]) -> tuple[Function, ...]:
    functions: tuple[Function, ...] = ()
    for _, value in attributes:
        kind = value.__class__
        if kind is Function:
            functions += (value,)
        elif kind is tuple:
            for item in value:
                if item.__class__ is not int:  # most tuples hold integers only
                    functions += _functions_within(value)
                    break
    return functions


def _functions_within(values: tuple[Attribute, ...]) -> tuple[Function, ...]:
    nested = [_functions_within(value) if value.__class__ is tuple else (value,) for value in values]
    return tuple([value for inner in nested for value in inner if value.__class__ is Function])


def live_node_count() -> int:
    """The number of live nodes, for tests of memory use."""
    _table.clear_up()
    return sum(entry() is not None for entry in list(_table.values()))


def attribute_key(value: Attribute) -> Any:
    """A key that distinguishes attributes by type and bits: 1 from True, 0.0 from -0.0; a NaN equals itself."""
    kind = value.__class__
    if kind in _plain_keys:
        return value
    if kind is tuple:
        for item in value:  # type: ignore[union-attr]
            if item.__class__ is not int:
                return tuple([attribute_key(item) for item in value])  # type: ignore[union-attr]
        return value
    if kind is float:
        return _pack_double(value)
    if kind is bool:
        return kind, value
    if isinstance(value, Type | Dimension | Function | Key):
        _plain_keys.add(kind)
        return value
    if isinstance(value, int | str):
        return kind, value
    if isinstance(value, complex):
        return struct.pack("<dd", value.real, value.imag)
    if isinstance(value, tuple):
        return tuple(map(attribute_key, value))
    if isinstance(value, float):
        return _pack_double(value)
    raise UsageError(f"{value!r} cannot be an attribute", expected="a number, string, type, function or tuple of those")


# Classes whose objects are their own keys. Booleans and floats are not among them: True == 1 and 0.0 == -0.0.
_plain_keys: set[type] = {int, str, type(None)}


@dataclass(frozen=True, eq=False)
class Function:
    """A closed function: positional parameters, results, and a name that is not part of its identity.

    Functions with checks are equal only if the checks are on the same lines; `ir.line_sites.equal_but_for_lines`
    ignores lines. `livegrad.ir.function.make_function` creates a function and checks that it is closed.

    >>> import livegrad as lg
    >>> f = lg.ir.trace(lambda x, y: x * y, lg.f32, lg.f32)
    >>> f.parameter_types, f.result_type
    ((f32, f32), f32)
    """

    name: str
    parameters: tuple[Node, ...]
    results: tuple[Node, ...]

    source_locations: dict[Node, tuple[SourceLocation, ...]] = field(default_factory=dict, init=False, repr=False)
    """The source locations of this function's nodes and of those in nested functions; not part of its identity.

    A node may be shared with other functions, which have other locations for it.
    """

    def origins_of(self, node: Node) -> tuple[SourceLocation, ...]:
        """Returns the source lines of a node of this function.

        >>> import livegrad as lg
        >>> f = lg.ir.trace(lambda x: lg.ops.sin(x) * x, lg.f32)
        >>> len(f.origins_of(f.results[0]))
        1
        """
        return node.local_origins if node.located else self.source_locations.get(node, node.local_origins)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Function) and self.results == other.results and self.parameters == other.parameters

    def __hash__(self) -> int:
        digest = self.__dict__.get("_hash")
        if digest is None:
            digest = self.__dict__["_hash"] = hash((self.parameters, self.results))
        return digest

    @cached_property
    def parameter_types(self) -> tuple[Type, ...]:
        return tuple(parameter.type for parameter in self.parameters)

    @cached_property
    def result_types(self) -> tuple[Type, ...]:
        return tuple(result.type for result in self.results)

    @property
    def result_type(self) -> Type:
        """The type of a call: the type of the single result, or a tuple type."""
        return self.result_types[0] if len(self.results) == 1 else Tuple(self.result_types)

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.parameter_types))
        return f"<function {self.name}({inputs}) -> {self.result_type}>"

    def to_svg(self) -> str:
        """Returns an SVG drawing of the nodes. Parameters are blue, results orange.

        An inner function, such as a loop body, is one box.
        """
        return draw_function(self)

    def _repr_svg_(self) -> str:
        return self.to_svg()


@dataclass(frozen=True)
class Module:
    """Named functions, the input and output of a pass. The functions they call are reached through them."""

    functions: tuple[Function, ...]

    def function(self, name: str) -> Function:
        for function in self.functions:
            if function.name == name:
                return function
        raise UsageError(f"no function `{name}`", expected="one of " + ", ".join(f.name for f in self.functions))
