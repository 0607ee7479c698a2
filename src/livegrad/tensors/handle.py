"""The lazy tensor: a handle on a node of the value IR. Operations create nodes; a value is computed when it is read.

Functions of the tensor namespace take handles, build nodes on their nodes, and return new handles through `wrap`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from html import escape
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn
from weakref import ref

import numpy as np

from livegrad.diagnostics import LivegradError, UsageError, caller_origin, caller_origins
from livegrad.diagnostics.other_names import name_of_method
from livegrad.ir.bfloat16 import readable
from livegrad.ir.leaves import input_op
from livegrad.ir.node import Node, make_node
from livegrad.ir.op import Op
from livegrad.ir.source_lines import ambient
from livegrad.ir.types import Scalar, f64
from livegrad.ir.types import Tensor as TensorType
from livegrad.lazy.deferred_ops import DeferredOp
from livegrad.lazy.execution import execute, execute_node
from livegrad.lazy.holders import register_holder, register_waiting
from livegrad.lazy.lazy_values import Array, Value, cached_value, is_traced, leaf_of, on_host, read_leaf, value_store
from livegrad.ops.movement import broadcast
from livegrad.tensors import weak_types
from livegrad.tensors.broadcasting import broadcast_node_shapes, cast_and_broadcast
from livegrad.tensors.concrete import at_arguments, bound_arguments
from livegrad.tensors.deferred import (
    Deferred,
    deferred_type,
    element_index,
    make_deferred_node,
    read_deferred,
)
from livegrad.tensors.dtypes import DEFAULT_FLOAT, default_type, promote_types, weak_type
from livegrad.tensors.errors import NoDimensionsError
from livegrad.tensors.interop import Interop
from livegrad.tensors.lifecycle import Lifecycle
from livegrad.tensors.methods import Methods, namespace
from livegrad.tensors.number_nodes import Number, number_node
from livegrad.tensors.reading import Reading
from livegrad.tensors.tensor_operators import Operators
from livegrad.tensors.weak_types import cast_number, give_default_type, is_weak

_new = object.__new__
_INDEXABLE = (Node, DeferredOp)  # sources whose elements need no node


class Tensor(Reading, Interop, Lifecycle, Methods, Operators):
    """A lazy multi-dimensional array. Its value is computed when it is first read, and cached.

    >>> import livegrad as lg
    >>> x = lg.asarray([1.0, 2.0, 3.0])
    >>> y = x * x + 1.0          # adds nodes to a graph; nothing runs yet
    >>> y
    Tensor([ 2.,  5., 10.], dtype=float32)
    """

    __slots__ = ("__weakref__", "_deferred", "_extra", "_node")
    __array_priority__: ClassVar[float] = 1000.0  # NumPy leaves `array + tensor` to the tensor
    _node: Node | None  # None: freed. Unset: created from `_deferred` on demand
    _deferred: Deferred | None
    _extra: dict[str, Any] | None  # only gradient variables have it: {"grad": the gradient or None}

    def __init__(self, *data: Any, **settings: Any) -> None:
        raise UsageError(
            "Tensor cannot be called directly", where=caller_origin(), help="use lg.asarray(data) or lg.zeros(shape)"
        )

    if not TYPE_CHECKING:  # type checkers would accept any attribute

        def __getattr__(self, name: str) -> Any:
            if name == "_node":
                return self._make_node()
            advice = None if name.startswith("__") else name_of_method(name)  # libraries probe for protocols
            what = f"'Tensor' object has no attribute '{name}'"
            raise AttributeError(what if advice is None else f"{what}; write {advice}", name=name, obj=self)

    def _make_node(self) -> Node | None:
        """Creates the node of a deferred tensor."""
        with value_store.current.lock:  # two threads must get the same leaf
            if self._deferred is not None:
                self._set_node(make_deferred_node(self._deferred))
            return self._node

    # --- type and shape ---

    @property
    def node(self) -> Node:
        """The node of the value IR that computes this tensor."""
        node = self._node
        if node is None:
            _raise_freed()
        return node

    @property
    def type(self) -> TensorType:
        deferred = self._deferred
        return self.node.type if deferred is None else deferred_type(deferred)  # type: ignore[return-value]

    @property
    def dtype(self) -> Scalar:
        """The element type.

        >>> import livegrad as lg
        >>> lg.ones(3).dtype == lg.float32
        True
        """
        return self.type.element

    @property
    def shape(self) -> tuple[Any, ...]:
        """The size of each dimension. Sizes are symbolic inside a function that is traced for any size."""
        return self.type.shape

    @property
    def ndim(self) -> int:
        return self.type.rank

    @property
    def size(self) -> Any:
        return prod(self.shape)

    # --- value ---

    def execute(self) -> Tensor:
        """Computes the value now, unless it is cached, and returns the tensor itself.

        >>> import livegrad as lg
        >>> total = lg.sum(lg.ones((3, 4)))
        >>> float(total.execute())
        12.0
        """
        execute([self.node])
        return self

    @property
    def is_computed(self) -> bool:
        """Whether the value is cached, so that reading it runs nothing."""
        deferred = self._deferred
        if deferred is not None and read_deferred(deferred) is not None:
            return True
        return leaf_of(self.node) is not None or cached_value(self.node) is not None

    def _value(self) -> Array:
        """The value as a read-only NumPy array; computed on first use."""
        stored = self._stored_value()
        return stored if stored.__class__ is np.ndarray else on_host(stored)  # type: ignore[return-value]

    def _stored_value(self) -> Value:
        """The value in the memory of its device; computed on first use."""
        deferred = self._deferred
        if deferred is not None and (array := read_deferred(deferred, compute=True)) is not None:
            return array
        node = self._node
        if node is None:
            _raise_freed()
        if node.op is input_op:
            leaf = leaf_of(node)
            if leaf is not None:
                return read_leaf(leaf)
        elif node.cell is not None:
            value = cached_value(node)
            if value is not None:
                return value
        argument = at_arguments(node) if bound_arguments.values else node
        return execute_node(node) if argument is node else wrap(argument)._stored_value()

    def __len__(self) -> int:
        if not self.shape:
            raise NoDimensionsError("a zero-dimensional tensor has no length", where=caller_origin())
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            raise NoDimensionsError("a zero-dimensional tensor is not a sequence", where=caller_origin())
        return (self[index] for index in range(self.shape[0]))

    def __repr__(self) -> str:
        if self._node is None:
            return "Tensor(freed)"
        if not all(isinstance(size, int) for size in self.shape) or is_traced(self.node):
            return f"Tensor(traced, shape={self.shape}, dtype={self.dtype.long_name})"
        text = np.array2string(readable(self._value()), separator=", ", prefix="Tensor(")
        # Empty brackets do not show the shape, so it is added, as in NumPy.
        shape = f" shape={self.shape}," if 0 in self.shape and self.shape != (0,) else ""
        return f"Tensor({text},{shape} dtype={self.dtype.long_name})"

    def _repr_html_(self) -> str:
        """Displays shape, type, device and state above the values in notebooks.

        For a tensor that cannot be computed this shows the state only; notebooks also call `repr`, which raises.
        """
        if self._node is None:
            return "<pre>Tensor(freed)</pre>"
        shape = " × ".join(map(str, self.shape)) or "a number"
        state = (
            "traced" if is_traced(self.node) else "was computed" if self.is_computed else "computed for this display"
        )
        try:
            text = repr(self)
        except LivegradError:
            state, text = "could not be computed", ""
        summary = f"{shape} · {self.dtype.long_name} · {self.device} · {state}"
        return f"<div><b>Tensor</b> {summary}</div><pre>{escape(text)}</pre>"

    # --- the namespace ---

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """Returns the module with the functions of the Array API."""
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12", "2025.12"):
            raise ValueError(f"unsupported version {api_version} of the Array API: expected 2025.12 or earlier")
        return importlib.import_module("livegrad")

    def __getitem__(self, key: Any) -> Tensor:
        if (
            (key.__class__ is int or key.__class__ is tuple)
            and ambient.is_unset
            and not weak_types.python_numbers.current.traces
        ):
            deferred = self._deferred
            if deferred is None:
                source, before = self._node, ()
            else:
                source, before, _ = deferred
            if source.__class__ in _INDEXABLE and (index := element_index(source, before or (), key)) is not None:
                element = _new(Tensor)
                element._extra, element._deferred = None, (source, index, caller_origins(2))
                if source.__class__ is Node:
                    register_waiting(ref(element))  # for the value that it is an element of
                return element
        return namespace().get_item(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Assigns values: rebinds this handle to the updated tensor. Other handles keep the old values."""
        self._rebind(namespace().set_item(self, key, value))

    def _set_node(self, node: Node) -> None:
        """Rebinds the handle to another node, such as the leaf that replaces a truncated history."""
        self._node = node
        self._deferred = None
        register_holder(node, self)


# --- conversion between nodes and tensors ----------------------------------------------------------------------------


def wrap(node: Node) -> Tensor:
    """Creates a handle on a node; a scalar becomes a tensor without dimensions."""
    if not isinstance(node.type, TensorType):
        node = broadcast(node, shape=(), axes=())
    tensor = _new(Tensor)
    tensor._node, tensor._extra, tensor._deferred = node, None, None
    register_holder(node, tensor)
    if weak_types.python_numbers.current.traces and node.type.shape == () and node.operands:  # type: ignore[attr-defined]
        weak_types.mark_weak_result(node)
    return tensor


def node_of(value: Any, user: str) -> Node:
    """Returns the node of a tensor, number or NumPy array; arrays become leaves."""
    if isinstance(value, Tensor):
        return give_default_type(value.node) if weak_types.python_numbers.current.traces else value.node
    if isinstance(value, Node):
        return value
    if isinstance(value, _NUMBERS) and not isinstance(value, np.generic):
        return number_node(value, default_type(value))
    if isinstance(value, np.ndarray | np.generic):
        return namespace().asarray(value).node
    kind, library = type(value).__name__, type(value).__module__.partition(".")[0]
    raise UsageError(
        f"`{user}` takes tensors and numbers",
        where=caller_origin(),
        found=f"{library}.{kind}" if hasattr(value, "__dlpack__") else kind,  # other libraries have a `Tensor` too
        help="use lg.asarray",
    )


def weak_node_of(value: Any, user: str) -> Node:
    """Returns the node like `node_of`, but keeps traced numbers weakly typed, for operations that numbers have too."""
    return value.node if isinstance(value, Tensor) else node_of(value, user)


def is_operand(value: Any) -> bool:
    """Whether operators accept the value: a tensor, a number, or a NumPy array."""
    return isinstance(value, _OPERANDS)


_NUMBERS = (bool, int, float, complex)
_OPERANDS = (Tensor, bool, int, float, complex, np.ndarray, np.generic)


def combine(op: Op, first: Any, second: Any) -> Node:
    """Applies a binary op after promoting the operands to one type and broadcasting them to one shape."""
    a, b = match_operands(op.name, first, second)
    return op(a, b)


def match_operands(user: str, first: Any, second: Any) -> tuple[Node, Node]:
    """Promotes two operands to one element type and broadcasts them. Python numbers take the type of the tensor."""
    if first.__class__ is Tensor and second.__class__ is Tensor:
        a, b = first.node, second.node
        if a.type is b.type:
            return a, b
    a, b = _typed(user, first, second)
    if a.type is b.type:
        return a, b
    a_type, b_type = a.type, b.type
    assert isinstance(a_type, TensorType)
    assert isinstance(b_type, TensorType)
    element = promote_types(a_type.element, b_type.element, user)
    shape = a_type.shape if a_type.shape == b_type.shape else broadcast_node_shapes(user, a, b)
    return cast_and_broadcast(a, element, shape), cast_and_broadcast(b, element, shape)


def _typed(user: str, first: Any, second: Any) -> tuple[Node, Node]:
    """Converts both operands to nodes; the weaker typed one takes its type from the other."""
    first_weakness, second_weakness = _weakness(first), _weakness(second)
    if first_weakness == second_weakness:
        return weak_node_of(first, user), weak_node_of(second, user)
    if second_weakness > first_weakness:
        a = weak_node_of(first, user)
        return a, _convert_weak(second, a)
    b = weak_node_of(second, user)
    return _convert_weak(first, b), b


def _weakness(value: Any) -> int:
    """Returns how weakly an operand is typed: 0 for tensors, 1 for traced numbers, 2 for Python numbers."""
    if isinstance(value, Tensor):
        return 1 if is_weak(value._node) else 0
    return 2 if isinstance(value, _NUMBERS) and not isinstance(value, np.generic) else 0


def are_weak_numbers(*values: Any) -> bool:
    """Whether all operands are weakly typed numbers."""
    return all(map(_weakness, values))


def convert_number(value: Any, element: Scalar) -> Node | None:
    """Converts a weakly typed number to an element type; None for tensors, and for traced numbers of wider kinds."""
    if not isinstance(value, Tensor):
        return number_node(value, element) if _weakness(value) else None
    if not is_weak(value._node) or weak_type(example_of(value), element) is not element:
        return None
    return cast_number(value.node, element)


def example_of(value: Tensor) -> Number:
    """Returns a Python number of the same kind as the tensor's elements."""
    return {"bool": True, "float": 1.0, "complex": 1j}.get(value.dtype.kind, 1)


def _convert_weak(value: Any, beside: Node) -> Node:
    type = beside.type
    assert isinstance(type, TensorType)
    if isinstance(value, Tensor):
        return cast_number(value.node, weak_type(example_of(value), type.element))
    element = weak_type(value, type.element)
    if element is DEFAULT_FLOAT and type.element.kind != "float" and is_weak(beside):
        element = f64  # both are weakly typed: the tensor that they are combined with decides the precision
    return number_node(value, element, type.shape if element is type.element else ())


def _binary(name: str, first: Any, second: Any) -> Tensor:
    if first.__class__ is Tensor and second.__class__ is Tensor:
        a, b = first._node, second._node
        if a is None or b is None:
            _raise_freed()
        if a.type is b.type:
            return wrap(make_node(Op.table[name], (a, b)))
    elif second.__class__ is float and first.__class__ is Tensor and not weak_types.python_numbers.current.traces:
        a = first.node
        type = a.type
        if type.element.kind == "float":  # type: ignore[attr-defined]
            number = number_node(second, type.element, type.shape)  # type: ignore[attr-defined]
            return wrap(make_node(Op.table[name], (a, number)))
    elif not (is_operand(first) and is_operand(second)):
        return NotImplemented
    return wrap(combine(Op.table[name], first, second))


def _call_named(name: str, *operands: Any) -> Tensor:
    if not all(map(is_operand, operands)):
        return NotImplemented
    return getattr(namespace(), name)(*operands)


Tensor._binary, Tensor._call_named = staticmethod(_binary), staticmethod(_call_named)


def _raise_freed() -> NoReturn:
    raise UsageError("this tensor was freed", where=caller_origin(), help="do not free it, or compute it again")
