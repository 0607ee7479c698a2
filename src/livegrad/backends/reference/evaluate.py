"""Evaluation of a function on NumPy values, node by node in topological order.

Scalars are NumPy scalars, vectors and matrices small arrays, structs and tuples Python tuples, tensors arrays, traces
dicts from index to value. Tests call this to learn what any other backend must give.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from livegrad.diagnostics import KernelCheckError, LivegradError, UsageError
from livegrad.ir.leaves import input_op, parameter_op
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import (
    Array,
    Dimension,
    Matrix,
    Scalar,
    Struct,
    Tensor,
    Trace,
    Tuple,
    Type,
    Vector,
    components,
)
from livegrad.ir.walk import nodes_of
from livegrad.ops.control import check, map_
from livegrad.ops.trace import add_plain, trace_get, zero_value

_FAILURES = (ZeroDivisionError, IndexError, OverflowError)


def evaluate(function: Function, *arguments: Any, inputs: Mapping[Key, Any] | None = None) -> Any:
    """The function's value at these arguments: one value, or a tuple when it has several results.

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import f32
    >>> float(evaluate(trace(lambda x: x * x + 1.0, f32), 3.0))
    10.0
    """
    if len(arguments) != len(function.parameters):
        raise UsageError(f"`{function.name}` takes {len(function.parameters)} arguments", found=str(len(arguments)))
    sizes: dict[str, int] = {}
    values = [
        as_value(argument, type, sizes) for argument, type in zip(arguments, function.parameter_types, strict=True)
    ]
    with np.errstate(all="ignore"):
        return _run(function, inputs or {}, sizes, *values)


def _run(function: Function, inputs: Mapping[Key, Any], sizes: Mapping[str, int], *arguments: Any) -> Any:
    values: dict[Node, Any] = {}
    for node in nodes_of(function):
        if node.op is parameter_op:
            values[node] = arguments[node.attribute("index")]
        elif node.op is input_op:
            values[node] = as_value(inputs[node.attribute("key")], node.type, dict(sizes))
        else:
            values[node] = _apply(node, [values[operand] for operand in node.operands], inputs, sizes)
    results = tuple(values[result] for result in function.results)
    return results[0] if len(results) == 1 else results


def _apply(node: Node, operands: Sequence[Any], inputs: Mapping[Key, Any], sizes: Mapping[str, int]) -> Any:
    return apply_node(node, operands, lambda function, *arguments: _run(function, inputs, sizes, *arguments), sizes)


def apply_node(
    node: Node, operands: Sequence[Any], call: Callable[..., Any], sizes: Mapping[str, int] | None = None
) -> Any:
    """One node's value from its operands'; `call(function, *arguments)` runs the functions among its attributes."""
    sizes = sizes or {}
    attributes = {name: _resolve(value, call, sizes) for name, value in node.attributes}
    try:
        if node.op is map_:
            result = _map(node, operands, attributes["function"], sizes)
        elif node.op is trace_get:
            trace, index = operands[0], int(operands[1])
            result = trace[index] if index in trace else zero_value(_concrete(node.type, sizes))
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
            raise  # a mistake of our own, in whatever runs the functions among the attributes
        raise KernelCheckError(str(error), where=node.origin) from None
    return _conform(result, node.type)


def _resolve(value: Any, call: Callable[..., Any], sizes: Mapping[str, int]) -> Any:
    """Attributes as the rules take them: functions as callables, symbolic sizes as numbers."""
    if isinstance(value, Function):
        return partial(call, value)
    if isinstance(value, Dimension):
        return value.evaluate(sizes)
    if isinstance(value, tuple):
        return tuple(_resolve(item, call, sizes) for item in value)
    return value


def _conform(value: Any, type: Type) -> Any:
    """The value in its type's own precision: NumPy rules may have widened it."""
    match type:
        case Scalar():
            return type.dtype.type(value) if np.asarray(value).dtype != type.dtype else value
        case Vector(element=element) | Matrix(element=element) | Tensor(element=element):
            return np.asarray(value, element.dtype)
    return value


def _concrete(type: Type, sizes: Mapping[str, int]) -> Type:
    """The type with its symbolic sizes as numbers."""
    match type:
        case Tensor(element=element, shape=shape):
            return Tensor(element, tuple(s.evaluate(sizes) if isinstance(s, Dimension) else s for s in shape))
        case Tuple(elements=elements):
            return Tuple(tuple(_concrete(member, sizes) for member in elements))
        case Array(element=element, size=size):
            return Array(_concrete(element, sizes), size)
        case Struct(name=name, fields=fields):
            return Struct(name, tuple((field, _concrete(member, sizes)) for field, member in fields))
    return type


def as_value(argument: Any, type: Type, sizes: dict[str, int]) -> Any:
    """An argument as this backend holds values of `type`; symbolic sizes are bound or compared with what they are."""
    match type:
        case Scalar():
            if np.ndim(argument) != 0:
                raise UsageError(
                    "an argument of the wrong shape", expected=str(type), found=f"shape {np.shape(argument)}"
                )
            return type.dtype.type(argument)
        case Vector(element=element, size=size):
            return _shaped(argument, element, (size,), type)
        case Matrix(element=element, rows=rows, columns=columns):
            return _shaped(argument, element, (rows, columns), type)
        case Tensor(element=element, shape=shape):
            array = argument if isinstance(argument, np.ndarray) else np.asarray(argument, element.dtype)
            if array.dtype != element.dtype:
                found = f"an array of {array.dtype}"
                raise UsageError("an argument of the wrong type", expected=str(type), found=found)
            bind_sizes(shape, array.shape, sizes, type)
            return array
        case Struct() | Tuple() | Array():
            members = argument.values() if isinstance(argument, Mapping) else argument
            return tuple(as_value(m, t, sizes) for m, t in zip(members, components(type), strict=True))
        case Trace(element=element):
            return {int(key): as_value(value, element, sizes) for key, value in argument.items()}
    raise UsageError(f"no argument can be a {type}")


def _shaped(argument: Any, element: Scalar, shape: tuple[int, ...], type: Type) -> Any:
    array = np.asarray(argument, element.dtype)
    if array.shape != shape:
        raise UsageError("an argument of the wrong shape", expected=str(type), found=f"shape {array.shape}")
    return array


def bind_sizes(shape: Sequence[Any], found: tuple[int, ...], sizes: dict[str, int], type: Type) -> None:
    """Learns the symbolic sizes of a tensor type from an actual shape, or refuses it."""
    if len(shape) != len(found):
        raise UsageError("an argument of the wrong shape", expected=str(type), found=f"shape {found}")
    for size, actual in zip(shape, found, strict=True):
        if isinstance(size, Dimension) and size == Dimension.symbol(next(iter(size.symbols))):
            (name,) = size.symbols
            size = sizes.setdefault(name, actual)
        elif isinstance(size, Dimension):
            size = size.evaluate(sizes) if size.symbols <= sizes.keys() else actual
        if size != actual:
            raise UsageError("an argument of the wrong shape", expected=str(type), found=f"shape {found}")


# --- map -------------------------------------------------------------------------------------------------------------


def _map(node: Node, operands: Sequence[Any], function: Callable[..., Any], sizes: Mapping[str, int]) -> Any:
    inner: Function = node.attribute("function")
    lifted, summed = node.attribute("lifted"), node.attribute("summed")
    domain = _domain(operands, inner.parameter_types, lifted)
    number = len(inner.results)
    collected: list[list[Any]] = [[] for _ in range(number)]
    for point in product(*map(range, domain)):
        arguments = [_at(v, point) if flag else v for v, flag in zip(operands, lifted, strict=True)]
        values = function(*arguments)
        for bag, value in zip(collected, (values,) if number == 1 else values, strict=True):
            bag.append(value)
    results = tuple(
        _total(bag, _concrete(type, sizes)) if flag else _collect(bag, type, domain)
        for bag, type, flag in zip(collected, inner.result_types, summed, strict=True)
    )
    return results[0] if number == 1 else results


def _domain(operands: Sequence[Any], types: Sequence[Type], lifted: Sequence[bool]) -> tuple[int, ...]:
    for value, own, flag in zip(operands, types, lifted, strict=True):
        if flag:
            while isinstance(value, tuple):
                value, own = value[0], components(own)[0]
            depth = {Vector: 1, Matrix: 2}.get(own.__class__, 0)
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
