"""Calls of captured functions, from the fastest path to the slowest: direct calls, cached calls, lazy calls, dispatch.

A call with a lazy tensor among its arguments becomes a node of the tensor graph: `f(points)` is a lazy tensor with
gradients. `PlainFunction` calls `run`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import zip_longest
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin, shown
from livegrad.frontend.function.array_patterns import Pattern, TensorPattern, TuplePattern
from livegrad.frontend.function.call_cache import call_key, make_direct_call
from livegrad.frontend.function.captured import CapturedFunction
from livegrad.frontend.function.compile_values import Value
from livegrad.frontend.function.dispatch import abstract_argument, call_span, run_now
from livegrad.frontend.function.execution import apply_mapped, cast_array, is_lifted, points_of
from livegrad.frontend.function.function_types import (
    MISSING,
    NONE,
    ArrayType,
    Composite,
    FrontType,
    Instance,
    RecordType,
    TensorType,
    TupleType,
    describe,
    ir_of,
    to_argument,
)
from livegrad.frontend.function.overloads import choose
from livegrad.frontend.function.promotion import is_lossless
from livegrad.frontend.function.signature import Default
from livegrad.ir import types as ir
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ops.aggregate import make, member
from livegrad.ops.control import call
from livegrad.ops.conversion import cast
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import broadcast_to
from livegrad.tensors.array_handles import wrap_array
from livegrad.tensors.broadcasting import join_shapes
from livegrad.tensors.handle import Tensor, wrap
from livegrad.tensors.weak_types import is_weak, make_strong

_MAX_DIRECT_CALLS = 4  # per function


def contains_tensor(value: Any) -> bool:
    """Whether a value is a lazy tensor, or a struct, pair or tuple that contains one."""
    if isinstance(value, Tensor):
        return True
    if isinstance(value, Instance):
        return any(contains_tensor(part) for name, part in vars(value).items() if name != "__livegrad_type__")
    if isinstance(value, tuple):
        return any(map(contains_tensor, value))
    value_type = getattr(value, "__livegrad_type__", None)
    if isinstance(value_type, RecordType) and not isinstance(value, type):
        return any(contains_tensor(getattr(value, field.name, None)) for field in value_type.fields)
    return False


def run(function: CapturedFunction, positional: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Calls a captured function: eagerly on Python values, lazily if an argument contains a tensor."""
    overloads = len(function.overloads)
    if not keywords:
        calls = function.direct_calls
        for direct_call in calls:
            if direct_call.overloads == overloads and direct_call.is_current():
                results = direct_call.run(*positional)
                if results is not None:
                    if direct_call is not calls[0]:  # move to front: the next call is probably like this one
                        function.direct_calls = (direct_call, *[other for other in calls if other is not direct_call])
                    return direct_call.convert_result(results)
    key = call_key(overloads, positional, keywords)
    prepared = None if key is None else function.call_cache.get(key)
    if prepared is not None and prepared.is_current():
        result = prepared((*positional, *keywords.values()) if keywords else positional)
        if not prepared.direct_call_tried and not keywords:
            prepared.direct_call_tried = True
            direct_call = make_direct_call(prepared, overloads, positional)
            if direct_call is not None:
                function.direct_calls = (direct_call, *function.direct_calls[: _MAX_DIRECT_CALLS - 1])
        return result
    result = run_lazily(function, positional, keywords)
    return run_now(function, positional, keywords, key) if result is MISSING else result


def run_lazily(function: CapturedFunction, positional: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Builds the call as a node: returns a tensor, or a struct or tuple of tensors; `MISSING` if no argument contains
    one.
    """
    if not any(map(contains_tensor, (*positional, *keywords.values()))):
        return MISSING
    overloaded = len(function.overloads) > 1
    parameters = [] if overloaded else function.signature.parameters
    expected = {p.name: p.annotation.expected_for for p in parameters}
    values = [abstract_lazily(v, parameters[k].annotation.expected_for(v) if k < len(parameters) else None, overloaded)
              for k, v in enumerate(positional)]  # fmt: skip
    keyword_values = {
        name: abstract_lazily(value, expected[name](value) if name in expected else None, overloaded)
        for name, value in keywords.items()
    }
    match = choose(function, values, keyword_values, call_span())
    specialization = match.function.specialize(match.slots)
    specialization.require_inouts_returned(call_span())
    bound = match.function.signature.bind(positional, keywords)
    assert not isinstance(bound, str)
    arguments = []
    for parameter, slot in zip(match.function.signature.parameters, match.slots, strict=True):
        argument = bound[parameter.name]
        if slot.type is not None:
            value = argument.value if isinstance(argument, Default) else argument
            arguments.append(LazyArgument(parameter.name, slot.type, value))
    return call_lazily(specialization.function, arguments, specialization.result_type, specialization.result_weak)


@dataclass(frozen=True)
class LazyArgument:
    """An argument of a lazy call."""

    name: str
    type: FrontType
    value: Any


def call_lazily(function: Function, arguments: Sequence[LazyArgument], result: FrontType, weak: bool = False) -> Any:
    """Calls an IR function lazily: returns a tensor, or a struct or tuple of tensors, with one value per point."""
    nodes = [_argument_node(argument.value, argument.type, argument.name) for argument in arguments]
    if any(isinstance(type, ir.Tensor) for type in function.parameter_types):
        nodes = list(map(_as_number, nodes, function.parameter_types))
    lifted = any(n.type is not t for n, t in zip(nodes, function.parameter_types, strict=True))
    node = apply_mapped(function, nodes) if lifted else call(*nodes, function=function)
    return wrap(node) if weak else _wrap_result(node, result, lifted)


def _as_number(node: Node, type: ir.Type) -> Node:
    """Reads the number in a tensor without dimensions, for a scalar parameter of a function of whole arrays."""
    is_single = isinstance(type, ir.Scalar) and isinstance(node.type, ir.Tensor) and not node.type.shape
    return lookup(node) if is_single else node


def abstract_lazily(value: Any, expected: Pattern | None, weak_numbers: bool = False) -> Value:
    """The abstract value of an argument that may contain lazy tensors; see `abstract_argument`."""
    if not contains_tensor(value):
        return abstract_argument(value, expected, weak_numbers)
    abstract = getattr(value, "__livegrad_abstract__", None)
    if abstract is not None:
        return abstract(abstract_lazily, expected, weak_numbers)
    if isinstance(value, tuple):
        patterns = expected.elements if isinstance(expected, TuplePattern | TupleType) else ()
        pairs = zip_longest(value, patterns[: len(value)])
        return Value(TupleType(tuple(abstract_lazily(item, pattern).type or NONE for item, pattern in pairs)))
    if isinstance(expected, TensorPattern) and isinstance(value, Tensor):
        if not all(isinstance(size, int) for size in value.shape):
            what = "a captured function takes whole arrays of known sizes"
            raise UsageError(what, where=caller_origin(), found=f"shape {value.shape}")
        widens = is_lossless(value.dtype, expected.element)
        return Value(TensorType(expected.element if widens else value.dtype, tuple(value.shape)))
    if not isinstance(value, Tensor):
        return Value(value.__livegrad_type__)
    if expected is None:
        return Value(value.dtype, weak=is_weak(value.node))
    if isinstance(expected, Composite | TensorPattern | TuplePattern):
        raise UsageError(f"a tensor cannot be passed as {expected!r}", where=caller_origin())
    shaped = ir.with_scalar(expected, value.dtype)
    assert isinstance(shaped, ir.Scalar | ir.Vector | ir.Matrix)
    return Value(shaped, weak=is_weak(value.node))


def _argument_node(value: Any, type: FrontType, name: str) -> Node:
    """Converts an argument to a node: a tensor with one value per point, or a value that all points share."""
    if isinstance(value, Tensor):
        node = value.node
        scalar = ir.scalar_of(ir_of(type))
        assert scalar is not None
        if not isinstance(type, Composite):
            points_of(type, value.shape, f"`{name}`")
        if value.dtype is scalar:
            return node
        if not is_lossless(value.dtype, scalar) and not is_weak(node):
            raise UsageError(
                f"`{name}` takes {describe(type)}", where=caller_origin(), found=f"a tensor of {value.dtype}",
                help="convert it with astype",
            )  # fmt: skip
        return cast(node, type=scalar)
    if isinstance(type, TupleType) and contains_tensor(value):
        parts = [_argument_node(item, element, name) for item, element in zip(value, type.elements, strict=True)]
        return make(*parts, type=ir.Tuple(tuple(part.type for part in parts)))
    if isinstance(type, RecordType) and (contains_tensor(value) or is_lifted(type, value)):
        return _struct_node(value, type, name)
    if isinstance(value, np.ndarray) and not isinstance(type, Composite):
        scalar, rank = ir.scalar_of(type), 0 if isinstance(type, ir.Scalar) else len(ir.components(type))
        assert scalar is not None
        if value.ndim > (0 if not rank else (1 if isinstance(type, ir.Vector) else 2)):
            return wrap_array(np.ascontiguousarray(cast_array(value, scalar))).node
    if isinstance(type, TensorType):
        return wrap_array(type.to_argument(value)).node
    return _constant_node(to_argument(type, value), ir_of(type))


def _struct_node(value: Any, type: RecordType, name: str) -> Node:
    """Converts a struct to a node whose fields are tensors; fields that all points share are broadcast."""
    parts = [_argument_node(getattr(value, field.name), field.type, f"{name}.{field.name}") for field in type.fields]
    fields = tuple((field.name, part.type) for field, part in zip(type.fields, parts, strict=True))
    node = make(*parts, type=ir.Struct(type.name, fields))
    domain: tuple[Any, ...] = reduce(partial(join_shapes, name), _domains(node, type.ir), ())
    return _broadcast_fields(node, type.ir, domain)


def _domains(node: Node, point: ir.Type) -> list[tuple[Any, ...]]:
    """The batch shapes of the tensors in a value."""
    if isinstance(node.type, ir.Tensor):
        depth = {ir.Vector: 1, ir.Matrix: 2}.get(point.__class__, 0)
        return [node.type.shape[: node.type.rank - depth]]
    if not isinstance(point, ir.Struct):
        return []
    return [d for index, part in enumerate(ir.components(point)) for d in _domains(member(node, index), part)]


def _broadcast_fields(node: Node, point: ir.Type, domain: tuple[Any, ...]) -> Node:
    if isinstance(point, ir.Struct):
        parts = [
            _broadcast_fields(member(node, index), part, domain) for index, part in enumerate(ir.components(point))
        ]
        fields = tuple((name, part.type) for (name, _), part in zip(point.fields, parts, strict=True))
        return make(*parts, type=ir.Struct(point.name, fields))
    if isinstance(point, ir.Tuple | ir.Array):
        raise UsageError(
            "a struct of tensors may only have fields of numbers and vectors", where=caller_origin(), found=str(point)
        )
    shape: Sequence[Any] = ()
    if isinstance(point, ir.Vector):
        shape = (point.size,)
    elif isinstance(point, ir.Matrix):
        shape = (point.rows, point.columns)
    if not isinstance(node.type, ir.Tensor):
        scalar = ir.scalar_of(point)
        assert scalar is not None
        members = [leaf.attribute("value") for leaf in _leaves(node)]
        node = wrap_array(np.array(members, scalar.dtype).reshape(tuple(shape))).node
    return broadcast_to(node, (*domain, *shape))


def _leaves(node: Node) -> list[Node]:
    if isinstance(node.type, ir.Scalar):
        return [node]
    return [leaf for k in range(len(ir.components(node.type))) for leaf in _leaves(member(node, k))]


def _constant_node(value: Any, type: ir.Type) -> Node:
    if isinstance(type, ir.Scalar):
        number = _require_number(value, type)
        return constant(float(number) if type.kind == "float" else number, type)
    parts = np.asarray(value).reshape(-1) if isinstance(type, ir.Vector | ir.Matrix) else value
    return make(
        *[_constant_node(part, part_type) for part, part_type in zip(parts, ir.components(type), strict=True)],
        type=type,
    )


def _require_number(value: Any, type: ir.Scalar) -> Any:
    number = np.asarray(value)
    if number.ndim or number.dtype.kind not in _FITTING_KINDS[type.kind]:
        raise UsageError(
            "an argument of the wrong type", where=caller_origin(), expected=describe(type), found=shown(value)
        )
    return number.item()


# NumPy's kinds that each kind of scalar accepts; `constant` checks the range of the number.
_FITTING_KINDS = {"bool": "b", "signed": "biu", "unsigned": "biu", "float": "biuf", "complex": "biufc"}


def _wrap_result(node: Node, type: FrontType, lifted: bool) -> Any:
    """Wraps the result for the user: tensors in place of numbers and vectors."""
    if isinstance(type, RecordType):
        return type.make(**{
            field.name: _wrap_result(member(node, index), field.type, lifted) for index, field in enumerate(type.fields)
        })  # fmt: skip
    if isinstance(type, TupleType):
        return tuple(_wrap_result(member(node, index), element, lifted) for index, element in enumerate(type.elements))
    if isinstance(type, ArrayType):
        return [_wrap_result(member(node, index), type.element, lifted) for index in range(type.size)]
    if type is NONE:
        return None
    if isinstance(node.type, ir.Scalar):
        node = broadcast_to(node, ())
    if not isinstance(node.type, ir.Tensor):
        raise UsageError(f"a {describe(type)} cannot be a lazy result", where=caller_origin())
    return wrap(make_strong(node))  # the result type of the function is not weak
