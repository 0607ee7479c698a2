"""The reference backend: evaluates a function on NumPy values, node by node in topological order.

Scalars are NumPy scalars, vectors and matrices small arrays, structs and tuples Python tuples, tensors arrays, and
tapes mappings from index to value. Tests compare all other backends with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from livegrad.compiler import lower
from livegrad.diagnostics import KernelCheckError, LivegradError, UsageError
from livegrad.ir.bfloat16 import BFLOAT16, narrow, widen
from livegrad.ir.dimension import Dimension
from livegrad.ir.leaves import input_op, parameter_op
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.persistent_array import PersistentArray
from livegrad.ir.types import (
    Array,
    Matrix,
    Scalar,
    Struct,
    Tape,
    Tensor,
    Tuple,
    Type,
    Vector,
    bf16,
    components,
    f32,
    scalar_of,
)
from livegrad.ir.walk import nodes_of
from livegrad.ops.control import check
from livegrad.ops.differential import bwd_diff, fwd_diff
from livegrad.ops.maps import map_
from livegrad.ops.tape import add_plain, tape_get, tape_stack, zero_value
from livegrad.passes.bind_sizes import bind_type
from livegrad.passes.flatten_signature import assemble_value
from livegrad.passes.functions import uses_any
from livegrad.passes.lower_bfloat16 import computes_bfloat16
from livegrad.runtime.arguments import array_argument, infer_sizes, named_leaves, scalar_argument
from livegrad.schedule.target import REFERENCE

_FAILURES = (ZeroDivisionError, IndexError, OverflowError, np.linalg.LinAlgError)


def evaluate(function: Function, *arguments: Any, inputs: Mapping[Key, Any] | None = None) -> Any:
    """Evaluates a function with the reference backend; returns one value, or a tuple if it has several results.

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import f32
    >>> float(evaluate(trace(lambda x: x * x + 1.0, f32), 3.0))
    10.0
    """
    if uses_any([function], {fwd_diff, bwd_diff}):
        function = lower(function, REFERENCE)
    values, sizes = _convert_arguments(function, arguments)
    with np.errstate(all="ignore"):
        return _run(function, inputs or {}, sizes, *values)


def _convert_arguments(function: Function, arguments: Sequence[Any]) -> tuple[list[Any], dict[str, int]]:
    """Converts arguments to values of this backend; also returns their symbolic sizes."""
    leaves: list[Any] = []
    tensors: list[tuple[Tensor, tuple[int, ...], str]] = []
    for argument, type, label in named_leaves(function, arguments):
        leaves.append(_as_leaf(argument, type, label))
        if isinstance(type, Tensor):
            tensors.append((type, leaves[-1].shape, label))
    supply = iter(leaves)
    return [assemble_value(supply, type) for type in function.parameter_types], infer_sizes(tensors)


def _as_leaf(argument: Any, type: Type, label: str) -> Any:
    if isinstance(type, Scalar):
        number = scalar_argument(argument, type, label)
        return number if type is bf16 else type.dtype.type(number)
    if isinstance(type, Tensor | Vector | Matrix):
        return array_argument(argument, type, label)
    assert isinstance(type, Tape)
    return PersistentArray({int(key): _as_leaf(value, type.element, label) for key, value in argument.items()})


def _run(function: Function, inputs: Mapping[Key, Any], sizes: Mapping[str, int], *arguments: Any) -> Any:
    values: dict[Node, Any] = {}
    for node in nodes_of(function):
        if node.op is parameter_op:
            values[node] = arguments[node.attribute("index")]
        elif node.op is input_op:
            values[node] = _as_leaf(inputs[node.attribute("key")], node.type, f"input {node.attribute('key')}")
        else:
            values[node] = _apply(node, [values[operand] for operand in node.operands], inputs, sizes)
    results = tuple(values[result] for result in function.results)
    return results[0] if len(results) == 1 else results


def _apply(node: Node, operands: Sequence[Any], inputs: Mapping[Key, Any], sizes: Mapping[str, int]) -> Any:
    return apply_node(node, operands, lambda function, *arguments: _run(function, inputs, sizes, *arguments), sizes)


def apply_node(
    node: Node, operands: Sequence[Any], call: Callable[..., Any], sizes: Mapping[str, int] | None = None
) -> Any:
    """Computes a node's value from its operands. `call(function, *arguments)` runs functions among its attributes."""
    sizes = sizes or {}
    attributes = {name: _resolve(value, call, sizes) for name, value in node.attributes}
    if computes_bfloat16(node):
        # Computes in single precision, and rounds the result.
        operands = [widen(v) if scalar_of(o.type) is bf16 else v for o, v in zip(node.operands, operands, strict=True)]
        attributes = {name: f32 if value is bf16 else value for name, value in attributes.items()}
    try:
        if node.op is map_:
            result = _map(node, operands, attributes["function"], sizes)
        elif node.op is tape_get:
            tape, index = operands[0], int(operands[1])
            result = tape[index] if index in tape else zero_value(bind_type(node.type, sizes))
        elif node.op is tape_stack:
            missing = zero_value(bind_type(node.operands[0].type.element, sizes))  # type: ignore[attr-defined]
            entries = [operands[0].get(index, missing) for index in range(attributes["size"])]
            result = np.stack(entries) if entries else zero_value(bind_type(node.type, sizes))
        elif node.op.evaluate is None:
            raise UsageError(f"`{node.op.name}` has no reference evaluation", where=node.origin)
        else:
            result = node.op.evaluate(*operands, **attributes)
    except LivegradError:
        raise
    except _FAILURES as error:
        raise KernelCheckError(str(error), where=node.origin) from None
    except AssertionError as error:
        if node.op is not check:
            raise  # a bug in livegrad
        raise KernelCheckError(str(error), where=node.origin) from None
    return _conform(result, node.type)


def _resolve(value: Any, call: Callable[..., Any], sizes: Mapping[str, int]) -> Any:
    """Converts an attribute to what evaluation rules take: functions to callables, symbolic sizes to integers."""
    if isinstance(value, Function):
        return partial(call, value)
    if isinstance(value, Dimension):
        return value.evaluate(sizes)
    if isinstance(value, tuple):
        return tuple(_resolve(item, call, sizes) for item in value)
    return value


def _conform(value: Any, type: Type) -> Any:
    """Converts a value to the precision of its type, because NumPy's rules may have widened it."""
    match type:
        case Scalar():
            return type(value) if np.asarray(value).dtype != type.dtype else value
        case Vector(element=element) | Matrix(element=element) | Tensor(element=element) if element is bf16:
            array = np.asarray(value)
            return array if array.dtype == BFLOAT16 else narrow(array)
        case Tuple(elements=elements) if any(scalar_of(element) is bf16 for element in elements):
            return tuple(_conform(member, member_type) for member, member_type in zip(value, elements, strict=True))
        case Vector(element=element) | Matrix(element=element) | Tensor(element=element):
            return np.asarray(value, element.dtype)
    return value


# --- map -------------------------------------------------------------------------------------------------------------


def _map(node: Node, operands: Sequence[Any], function: Callable[..., Any], sizes: Mapping[str, int]) -> Any:
    inner: Function = node.attribute("function")
    lifted, summed = node.attribute("lifted"), node.attribute("summed")
    domain = _domain(operands, inner.parameter_types, lifted)
    result_count = len(inner.results)
    collected: list[list[Any]] = [[] for _ in range(result_count)]
    for point in product(*map(range, domain)):
        arguments = [_at(v, point) if flag else v for v, flag in zip(operands, lifted, strict=True)]
        values = function(*arguments)
        for column, value in zip(collected, (values,) if result_count == 1 else values, strict=True):
            column.append(value)
    results = tuple(
        _total(column, bind_type(type, sizes)) if flag else _collect(column, type, domain)
        for column, type, flag in zip(collected, inner.result_types, summed, strict=True)
    )
    return results[0] if result_count == 1 else results


def _domain(operands: Sequence[Any], types: Sequence[Type], lifted: Sequence[bool]) -> tuple[int, ...]:
    for value, type_of_value, flag in zip(operands, types, lifted, strict=True):
        if flag:
            while isinstance(value, tuple):
                value, type_of_value = value[0], components(type_of_value)[0]
            depth = {Vector: 1, Matrix: 2}.get(type_of_value.__class__, 0)
            return value.shape[: value.ndim - depth]
    raise UsageError("a map needs an operand that has one value for each point")


def _at(value: Any, point: tuple[int, ...]) -> Any:
    return tuple(_at(member, point) for member in value) if isinstance(value, tuple) else value[point]


def _collect(values: list[Any], type: Type, domain: tuple[int, ...]) -> Any:
    if isinstance(type, Struct | Tuple | Array):
        return tuple(
            _collect([value[index] for value in values], member, domain)
            for index, member in enumerate(components(type))
        )
    zero = np.asarray(zero_value(type))
    return np.array(values, zero.dtype).reshape(domain + zero.shape)


def _total(values: list[Any], type: Type) -> Any:
    total = zero_value(type)
    for value in values:
        total = add_plain(total, value)
    return total
