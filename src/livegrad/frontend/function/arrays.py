"""Compiles reads and writes of elements, rows and slices of whole arrays.

A write creates a new version of the array variable (as in SSA form), which branches and loops carry like any other
variable; later passes turn versions into in-place writes. Element accesses become `lookup` and `assign`; slices are
traced on lazy tensors.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from livegrad.frontend.function.aliases import Aliases, parameter_key
from livegrad.frontend.function.array_arithmetic import array_result, trace_tensors
from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import (
    Value,
    aliases_of,
    as_scalar_type,
    name_of,
    node_of,
    with_aliases,
)
from livegrad.frontend.function.function_types import TensorType, describe
from livegrad.frontend.function.operators import expect_int
from livegrad.ir import types as ir
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ops.affine import constant_difference
from livegrad.ops.assignment import assign
from livegrad.ops.elementwise import select
from livegrad.ops.indexing import lookup
from livegrad.passes.affine_bounds import range_of
from livegrad.tensors.handle import Tensor, wrap

_KINDS = {"bool": 0, "unsigned": 1, "signed": 1, "float": 2, "complex": 3}


@dataclass(frozen=True)
class _Index:
    """One index of a subscript: static, computed at run time, or a slice."""

    at: ast.expr
    static: int | slice | None = None
    value: Value | None = None

    @property
    def is_number(self) -> bool:
        return isinstance(self.static, int) or (self.value is not None and isinstance(self.value.type, ir.Scalar))

    def as_tensor_index(self, context: Context) -> Any:
        """The index in the form that lazy tensors accept."""
        if self.value is None:
            return self.static
        scalar = isinstance(self.value.type, ir.Scalar)
        node = expect_int(context, self.value, self.at, "an index") if scalar else self.value.node
        assert node is not None
        return wrap(node)


def _parse_indices(context: Context, type: TensorType, indices: list[ast.expr], at: ast.AST) -> list[_Index]:
    """Returns one index per dimension; `...` and missing indices select whole dimensions."""
    parts = [part for index in indices for part in (index.elts if isinstance(index, ast.Tuple) else [index])]
    ellipses = [k for k, part in enumerate(parts) if isinstance(part, ast.Constant) and part.value is ...]
    rank = len(type.shape)
    if len(parts) - len(ellipses) > rank or len(ellipses) > 1:
        raise context.error(
            "LG208", f"{describe(type)} takes {rank} {'index' if rank == 1 else 'indices'}", at, found=str(len(parts))
        )
    missing = [_Index(parts[-1], slice(None)) for _ in range(rank - len(parts) + len(ellipses))]
    keys: list[_Index] = []
    for position, part in enumerate(parts):
        keys += missing if position in ellipses else [_parse_index(context, part, type.shape[len(keys)])]
    return keys if ellipses else keys + missing


def _parse_index(context: Context, part: ast.expr, size: int) -> _Index:
    if isinstance(part, ast.Slice):
        return _Index(part, _parse_slice(context, part, size))
    value = context.evaluate(part)
    if isinstance(value.static, int) and not isinstance(value.static, bool):
        if not -size <= value.static < size:
            expected = f"{-size} to {size - 1}" if size else "no index: the axis is empty"
            raise context.error("LG208", f"index {value.static} is out of range", part, expected=expected)
        return _Index(part, value.static % size)
    is_index_array = isinstance(value.type, TensorType) and value.type.element.kind in ("signed", "unsigned")
    if not is_index_array:
        expect_int(context, value, part, "an index")
    return _Index(part, value=value)


def _parse_slice(context: Context, part: ast.Slice, size: int) -> slice:
    """A slice with static bounds, or with a computed start and a static length, as in `a[i : i + 3]`."""
    values = [None if bound is None else context.evaluate(bound) for bound in (part.lower, part.upper, part.step)]
    static_values = [None if value is None else value.static for value in values]
    if all(bound is None or isinstance(bound, int) for bound in static_values):
        return slice(*static_values)
    first, last, _ = values
    step = 1 if static_values[2] is None else static_values[2]
    nodes = [expect_int(context, v, part, "a bound of a slice") for v in (first, last) if v is not None]
    count = constant_difference(nodes[1], nodes[0]) if len(nodes) == 2 and isinstance(step, int) else None
    if count is None or step < 1:
        raise context.error(
            "LG208",
            "the number of elements in a slice must be known at compile time",
            part,
            help="write a[i : i + 3], or loop over the elements",
        )
    # Negative bounds count from the end. If both are negative and the first is in range, the length stays `count`.
    from_end = (nodes[0] >= -size) & (nodes[0] + count < 0)
    start = select(nodes[0] < 0, select(from_end, nodes[0] + size, constant(size, ir.i64)), nodes[0])
    return slice(wrap(start), wrap(start + count), step)


def _normalize_index(context: Context, key: _Index, size: int) -> Node:
    """The index of an element as an i64. Negative indices count from the end; the access itself checks the range."""
    if isinstance(key.static, int):
        return constant(key.static, ir.i64)
    assert key.value is not None
    node = expect_int(context, key.value, key.at, "an index")
    bounds = range_of(node, context.ranges)
    return node if bounds is not None and bounds[0] >= 0 else select(node < 0, node + size, node)


def read_array(context: Context, value: Value, index: ast.expr, at: ast.AST) -> Value:
    """Reads an element, row or slice of an array."""
    assert isinstance(value.type, TensorType)
    keys = _parse_indices(context, value.type, [index], at)
    node = node_of(value, context.span(at))
    if all(key.is_number for key in keys):
        indices = [_normalize_index(context, key, size) for key, size in zip(keys, value.type.shape, strict=True)]
        return context.result(value.type.element, lookup(node, *indices), [value], at)
    lazy_indices = tuple(key.as_tensor_index(context) for key in keys)
    part = array_result(context, trace_tensors(context, at, lambda: wrap(node)[lazy_indices]), [value], at)
    is_view = all(key.is_number or isinstance(key.static, slice) for key in keys)
    return with_aliases(part, value.aliases) if is_view else part  # NumPy shares the memory of a view


def write_array(context: Context, array: Value, indices: list[ast.expr], value: Value, at: ast.AST) -> Value:
    """The array with an element, row or slice replaced; `a[i][j]` has two indices."""
    assert isinstance(array.type, TensorType)
    keys = _parse_indices(context, array.type, indices, at)
    node = node_of(array, context.span(at))
    new = _convert_to_element(context, value, array.type, at)
    if all(key.is_number for key in keys):
        if isinstance(new.type, ir.Tensor):
            raise context.error("LG202", "an element must be one number", at, found=name_of(value))
        element_indices = [
            _normalize_index(context, key, size) for key, size in zip(keys, array.type.shape, strict=True)
        ]
        return context.result(array.type, assign(node, new, *element_indices), [array, value], at)
    target = wrap(node)
    lazy_indices = tuple(key.as_tensor_index(context) for key in keys)
    trace_tensors(context, at, lambda: _assign_slice(target, lazy_indices, wrap(new)))
    return context.result(array.type, target.node, [array, value], at)


def _assign_slice(target: Tensor, key: Any, value: Tensor) -> Tensor:
    target[key] = value
    return target


def _convert_to_element(context: Context, value: Value, type: TensorType, at: ast.AST) -> Node:
    """Converts a value to the element type of the array. It may lose precision, as in NumPy, but not its kind."""
    element = value.type.element if isinstance(value.type, TensorType) else value.type
    if not isinstance(element, ir.Scalar) or _KINDS[element.kind] > _KINDS[type.element.kind]:
        raise context.error(
            "LG202",
            "the element has the wrong type",
            at,
            expected=describe(type.element),
            found=name_of(value),
            help=f"write {describe(type.element)}(...) to convert it" if isinstance(element, ir.Scalar) else None,
        )
    return as_scalar_type(value, type.element, context.span(at))


# --- write permissions -----------------------------------------------------------------------------------------------


def require_writable(context: Context, name: str, aliases: Aliases, at: ast.AST) -> None:
    """Raises unless the function created the arrays, or received them in `inout` parameters."""
    for alias in aliases:
        parameter = _parameter_of(alias.object)
        if parameter is not None and parameter not in context.inouts:
            what = f"`{parameter}`" if parameter == name else f"`{name}`, which is the array of `{parameter}`,"
            raise context.error(
                "LG110",
                f"{what} is written, but not declared `inout`",
                at,
                help=f"declare it: `{parameter}: lg.inout[...]`, or copy it first: `{name} = {parameter}.copy()`",
            )


def _parameter_of(object: Hashable) -> str | None:
    """The parameter that an object was passed in, directly or inside a tuple."""
    while isinstance(object, tuple) and len(object) == 2:
        if object[0] == "parameter" and isinstance(object[1], str):
            return object[1]
        object = object[0]
    return None


def require_same_array(context: Context, name: str, value: Value, at: ast.AST) -> None:
    """Raises if the name of an `inout` parameter is bound to another array, which the caller would not see."""
    if name not in context.inouts:
        return
    is_same = any(alias.object == parameter_key(name) for alias in aliases_of(value))
    if not is_same or value.node is not context.environment[name].node:
        raise context.error(
            "LG110",
            f"`{name}` is an `inout` parameter and keeps its array",
            at,
            help=f"write its elements, `{name}[:] = ...`, or use another name",
        )


def update_in_place(context: Context, array: Value, new: Value, at: ast.AST) -> Value:
    """`a += values`: the same array with new elements."""
    assert isinstance(array.type, TensorType)
    node = _convert_to_element(context, new, array.type, at)
    if node.type != ir_type(array.type):
        raise context.error("LG202", "this would change the shape of the array", at, found=name_of(new))
    return with_aliases(context.result(array.type, node, [array, new], at), aliases_of(array))


def ir_type(type: TensorType) -> ir.Type:
    return ir.Tensor(type.element, type.shape)
