"""Lvalues: reads of `value.field[index]`, and in-place updates of a part of a local variable.

Compiled values are copies. Changing a list, vector or struct with two names is an error, because in Python the change
would be visible under both names.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Set
from typing import Any

from livegrad.frontend.function.aliases import (
    aliases_of_container,
    aliases_of_element,
    aliases_of_shallow_copy,
    merge_aliases,
)
from livegrad.frontend.function.arrays import read_array, require_writable, write_array
from livegrad.frontend.function.assignment import root_name
from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import (
    Value,
    aliases_of,
    array_advice,
    convert,
    name_of,
    node_of,
    runtime,
    static,
    tuple_value,
    with_aliases,
)
from livegrad.frontend.function.function_types import MISSING, ArrayType, RecordType, TensorType, describe
from livegrad.frontend.function.operators import expect_int
from livegrad.frontend.function.sequences import sequence_members
from livegrad.frontend.function.vectors import swizzle
from livegrad.ir import types as ir
from livegrad.ir.node import Node
from livegrad.ops.aggregate import get_at, make, member, set_, set_at
from livegrad.ops.elementwise import detach, select

ITERATED = "~over"  # prefix of hidden variables that hold the list that a loop iterates over

# --- reading ---------------------------------------------------------------------------------------------------------


def detach_value(node: Node) -> Node:
    """Detaches all differentiable parts of a value, of any type."""
    if not ir.is_differentiable(node.type):
        return node
    members = ir.components(node.type)
    if isinstance(node.type, ir.Vector | ir.Matrix | ir.Scalar | ir.Tensor):
        return detach(node)
    return make(*[detach_value(member(node, index)) for index in range(len(members))], type=node.type)


def read_field(context: Context, value: Value, index: int, at: ast.AST) -> Value:
    """Reads a field of a struct; the value of a `no_diff` field has no derivative."""
    assert isinstance(value.type, RecordType)
    field = value.type.fields[index]
    node = member(node_of(value, context.span(at)), index)
    if not field.no_diff:
        return context.part(field.type, node, value, at, value.weak)
    cut = with_aliases(runtime(field.type, detach_value(node)), aliases_of_element(value.aliases))
    return context.with_flow(cut, "read_field", [value], at, field.name)


def read_swizzle(context: Context, value: Value, name: str, at: ast.AST) -> Value | None:
    """Reads components of a vector by letters, as in `v.xy`; None if the name is not a swizzle."""
    components = swizzle(name)
    if components is None or not isinstance(value.type, ir.Vector):
        return None
    if max(components) >= value.type.size:
        raise context.error("LG207", f"{describe(value.type)} has no component `{name}`", at)
    node = node_of(value, context.span(at))
    parts = [member(node, component) for component in components]
    if len(parts) == 1:
        return context.result(value.type.element, parts[0], [value], at)
    type = ir.Vector(value.type.element, len(parts))
    return context.result(type, make(*parts, type=type), [value], at)


def read_index(context: Context, value: Value, index: ast.expr, at: ast.AST) -> Value:
    """`value[index]`, with Python's negative indices and slices."""
    if isinstance(value.type, TensorType):
        return read_array(context, value, index, at)
    if isinstance(index, ast.Slice):
        return _read_slice(context, value, index, at)
    if isinstance(value.type, ir.Matrix):
        return _read_matrix(context, value, index, at)
    index_value = context.evaluate(index)
    if value.items is not None:
        if not isinstance(index_value.static, int):
            raise context.error(
                "LG208", "a tuple's index must be known at compile time", index, help="use a list, or unroll the loop"
            )
        return value.items[_normalize_static_index(context, index_value.static, len(value.items), index)]
    if value.is_static and not value.is_number:
        key = _static_key(index_value)
        if key is not MISSING:
            return _read_static_item(context, value, key, at)
    if not isinstance(value.type, ArrayType | ir.Vector):
        raise context.error("LG208", f"{name_of(value)} cannot be indexed", at, help=array_advice(value))
    node = node_of(value, context.span(at))
    if isinstance(index_value.static, int):
        position = _normalize_static_index(context, index_value.static, value.type.size, index)
        return context.part(value.type.element, member(node, position), value, at, value.weak)
    position = normalize_index(context, index_value, value.type.size, index)
    return context.part(value.type.element, get_at(node, position), value, at, value.weak)


def _static_key(index: Value) -> Any:
    """A static index, such as the `f64, 3` of `vec[f64, 3]`; `MISSING` if it is computed at run time."""
    if index.items is None:
        return index.static
    parts = tuple(_static_key(item) for item in index.items)
    return MISSING if any(part is MISSING for part in parts) else parts


def _read_static_item(context: Context, value: Value, key: Any, at: ast.AST) -> Value:
    try:
        return static(value.static[key])
    except Exception as error:
        raise context.error("LG208", f"{name_of(value)} has no such element: {error!r}", at) from None


def _normalize_static_index(context: Context, index: int, size: int, at: ast.AST) -> int:
    if not -size <= index < size:
        expected = f"{-size} to {size - 1}" if size else "no index: it is empty"
        raise context.error("LG208", f"index {index} is out of range", at, expected=expected)
    return index % size


def normalize_index(context: Context, index: Value, size: int, at: ast.AST) -> Node:
    """The node of a run-time index; a negative index counts from the end."""
    node = expect_int(context, index, at, "an index")
    return select(node < 0, node + size, node)


def _read_matrix(context: Context, value: Value, index: ast.expr, at: ast.AST) -> Value:
    assert isinstance(value.type, ir.Matrix)
    rows, columns = value.type.rows, value.type.columns
    node = node_of(value, context.span(at))
    row = ir.Vector(value.type.element, columns)
    if isinstance(index, ast.Tuple) and len(index.elts) == 2:
        line = read_index(context, value, index.elts[0], at)
        return read_index(context, line, index.elts[1], at)
    index_value = context.evaluate(index)
    lines = [make(*[member(node, r * columns + c) for c in range(columns)], type=row) for r in range(rows)]
    if isinstance(index_value.static, int):
        line = context.result(
            row, lines[_normalize_static_index(context, index_value.static, rows, index)], [value], at
        )
    else:
        table = make(*lines, type=ir.Array(row, rows))
        line = context.result(row, get_at(table, normalize_index(context, index_value, rows, index)), [value], at)
    return with_aliases(line, value.aliases)  # a row is a view in NumPy


def _static_bounds(context: Context, part: ast.Slice) -> slice:
    bounds: list[int | None] = []
    for bound in (part.lower, part.upper, part.step):
        static_bound = None if bound is None else context.evaluate(bound).static
        if bound is not None and not isinstance(static_bound, int):
            raise context.error("LG208", "the bounds of a slice must be known at compile time", bound)
        bounds.append(static_bound)
    return slice(*bounds)


def _read_slice(context: Context, value: Value, part: ast.Slice, at: ast.AST) -> Value:
    bounds = _static_bounds(context, part)
    if value.items is not None:
        return tuple_value(value.items[bounds])
    if not isinstance(value.type, ArrayType | ir.Vector):
        raise context.error("LG208", f"{name_of(value)} cannot be indexed", at, help=array_advice(value))
    node = node_of(value, context.span(at))
    indices = range(value.type.size)[bounds]
    element = value.type.element
    parts = [context.part(element, member(node, position), value, at, value.weak) for position in indices]
    if isinstance(value.type, ir.Vector) and parts:
        type = ir.Vector(value.type.element, len(parts))
        nodes = [node_of(item, context.span(at)) for item in parts]
        return with_aliases(context.result(type, make(*nodes, type=type), [value], at), value.aliases)  # a view
    return with_aliases(context.list_of(parts, at), aliases_of_shallow_copy(value.aliases))


# --- updating --------------------------------------------------------------------------------------------------------


def forbid_aliased_change(context: Context, root: ast.Name, depth: int, at: ast.AST) -> None:
    """Raises if an in-place change at `depth` in a variable would be visible under another name."""
    variable = context.environment.get(root.id)
    for alias in () if variable is None else aliases_of(variable):
        object_depth = alias.depth_of(depth)
        if object_depth is None:
            continue
        other_name = find_alias(context, alias.object, object_depth, {root.id})
        if other_name is not None and other_name.startswith(ITERATED):
            raise context.error(
                "LG106",
                f"`{root.id}` is changed while a loop iterates over it",
                at,
                help="iterate over a copy: `for x in copy(values)`",
            )
        view = other_name if isinstance(context.environment[root.id].type, TensorType) else None
        if other_name is not None or context.sharing.is_shared(alias.object, object_depth):
            raise context.error(
                "LG106",
                f"`{root.id}` has a second name, which would change too",
                at,
                help=f"copy it first: `{root.id} = copy({root.id})`"
                if view is None
                else f"copy what `{view}` refers to, with `.copy()`",
            )
        context.sharing.changed.add(alias.object)


def find_alias(context: Context, object: Hashable, depth: int, excluded: Set[str]) -> str | None:
    """A variable, other than the excluded ones, in which a change at this depth of an object would be visible."""
    for name, value in context.environment.items():
        if name in excluded or name.startswith("$"):
            continue  # results and outcomes of branches are read before any later change
        if any(alias.object == object and alias.source <= depth for alias in aliases_of(value)):
            return name
    return None


def read_lvalue(context: Context, target: ast.expr) -> Value:
    """Reads the target of an augmented assignment."""
    if isinstance(target, ast.Attribute):
        load: ast.expr = ast.Attribute(target.value, target.attr, ast.Load())
    else:
        assert isinstance(target, ast.Subscript)
        load = ast.Subscript(target.value, target.slice, ast.Load())
    return context.evaluate(ast.copy_location(load, target))


def assign_lvalue(context: Context, target: ast.Attribute | ast.Subscript, value: Value) -> None:
    """Assigns a value to a part of a local variable."""
    root = root_name(target)
    if root is None or root.id not in context.environment:
        raise context.error(
            "LG102", "only parts of local variables can be changed", target, help="return the new value instead"
        )
    path: list[ast.Attribute | ast.Subscript] = []
    node: ast.expr = target
    while isinstance(node, ast.Attribute | ast.Subscript):
        path.insert(0, node)
        node = node.value
    forbid_aliased_change(context, root, len(path) - 1, target)
    variable, added = context.environment[root.id], aliases_of(value)
    if isinstance(variable.type, TensorType):
        require_writable(context, root.id, aliases_of(variable), target)
        changed = _update_path(context, variable, path, value)
        context.environment[root.id] = with_aliases(changed, aliases_of(variable))  # elements are copied
        return
    last = path[-1]
    if isinstance(last, ast.Subscript) and isinstance(last.slice, ast.Slice):
        added = aliases_of_element(added)  # a slice assignment stores the elements, not their list
    context.sharing.record_shared(added, siblings=aliases_of(variable))
    changed = _update_path(context, variable, path, value)
    context.environment[root.id] = with_aliases(
        changed, merge_aliases(aliases_of(variable), aliases_of_container([added], depth=len(path)))
    )


def _update_path(context: Context, container: Value, path: list[ast.Attribute | ast.Subscript], value: Value) -> Value:
    """The container with the part at the end of the path replaced."""
    step, rest = path[0], path[1:]
    if isinstance(step, ast.Attribute):
        return _update_attribute(context, container, step, rest, value)
    return _update_element(context, container, step, rest, value)


def _update_attribute(
    context: Context, container: Value, step: ast.Attribute, rest: list[ast.Attribute | ast.Subscript], value: Value
) -> Value:
    span = context.span(step)
    if isinstance(container.type, RecordType):
        index = container.type.index_of(step.attr)
        if index is None:
            raise context.error("LG207", f"{describe(container.type)} has no field `{step.attr}`", step)
        field = container.type.fields[index]
        inner = value if not rest else _update_path(context, read_field(context, container, index, step), rest, value)
        inner = convert(inner, field.type, span, f"field `{field.name}`")
        if field.no_diff:
            inner = context.with_flow(inner, "field", [inner], step, field.name)
        node = set_(node_of(container, span), node_of(inner, span), index=index)
        return context.result(container.type, node, [container, inner], step)
    components = swizzle(step.attr)
    if components is None or not isinstance(container.type, ir.Vector) or rest:
        raise context.error("LG207", f"{name_of(container)} has no attribute `{step.attr}` that can be set", step)
    if max(components) >= container.type.size or len(set(components)) != len(components):
        raise context.error("LG207", f"{describe(container.type)} has no components `{step.attr}` to set", step)
    node = node_of(container, span)
    if len(components) == 1:
        part = convert(value, container.type.element, span, "the component")
        node = set_(node, node_of(part, span), index=components[0])
    else:
        part = convert(value, ir.Vector(container.type.element, len(components)), span, "the components")
        for position, component in enumerate(components):
            node = set_(node, member(node_of(part, span), position), index=component)
    return context.result(container.type, node, [container, part], step)


def _update_element(
    context: Context, container: Value, step: ast.Subscript, rest: list[ast.Attribute | ast.Subscript], value: Value
) -> Value:
    span = context.span(step)
    if isinstance(container.type, TensorType):
        steps = [step, *rest]
        indices = [part.slice for part in steps if isinstance(part, ast.Subscript)]
        if len(indices) < len(steps):
            raise context.error("LG207", f"{describe(container.type)} has no attribute that can be set", step)
        return write_array(context, container, indices, value, steps[-1])
    if isinstance(container.type, ir.Matrix):
        return _update_matrix(context, container, step, value)
    if not isinstance(container.type, ArrayType | ir.Vector):
        what = "a tuple" if container.items is not None else name_of(container)
        raise context.error("LG208", f"elements of {what} cannot be changed", step, help="use a list")
    if isinstance(step.slice, ast.Slice):
        if rest:
            raise context.error("LG102", "a part of a slice is a copy: changing it has no effect", step)
        return _update_slice(context, container, container.type, step, value)
    index = context.evaluate(step.slice)
    inner = value if not rest else _update_path(context, read_index(context, container, step.slice, step), rest, value)
    element = container.type.element
    inner = convert(inner, element, span, "the element")
    node = node_of(container, span)
    if isinstance(index.static, int):
        position = _normalize_static_index(context, index.static, container.type.size, step.slice)
        node = set_(node, node_of(inner, span), index=position)
    else:
        position = normalize_index(context, index, container.type.size, step.slice)
        node = set_at(node, position, node_of(inner, span))
    return context.result(container.type, node, [container, inner], step)


def _update_slice(
    context: Context, container: Value, type: ArrayType | ir.Vector, step: ast.Subscript, value: Value
) -> Value:
    """`x[a:b] = values`: one value per element; a single number fills all components of a vector."""
    assert isinstance(step.slice, ast.Slice)
    span = context.span(step)
    indices = range(type.size)[_static_bounds(context, step.slice)]
    if isinstance(type, ir.Vector) and isinstance(value.type, ir.Scalar):
        parts = [value] * len(indices)
    else:
        values = sequence_members(context, value, step)
        if values is None or len(values) != len(indices):
            found = name_of(value) if values is None else f"{len(values)} values"
            raise context.error("LG208", "the slice and the values differ in length", step,
                                expected=f"{len(indices)} values", found=found)  # fmt: skip
        parts = values
    parts = [convert(part, type.element, span, "the element") for part in parts]
    node = node_of(container, span)
    for position, part in zip(indices, parts, strict=True):
        node = set_(node, node_of(part, span), index=position)
    return context.result(type, node, [container, *parts], step)


def _update_matrix(context: Context, container: Value, step: ast.Subscript, value: Value) -> Value:
    assert isinstance(container.type, ir.Matrix)
    index = step.slice
    if not isinstance(index, ast.Tuple) or len(index.elts) != 2:
        raise context.error(
            "LG208", "an element of a matrix needs a row and a column", step, help="write m[row, column]"
        )
    span = context.span(step)
    part = convert(value, container.type.element, span, "the element")
    row, column = (context.evaluate(position) for position in index.elts)
    node, new = node_of(container, span), node_of(part, span)
    rows, columns = container.type.rows, container.type.columns
    if isinstance(row.static, int) and isinstance(column.static, int):
        r = _normalize_static_index(context, row.static, rows, index.elts[0])
        c = _normalize_static_index(context, column.static, columns, index.elts[1])
        return context.result(container.type, set_(node, new, index=r * columns + c), [container, part], step)
    flat = make(
        *[member(node, k) for k in range(rows * columns)], type=ir.Array(container.type.element, rows * columns)
    )
    position = normalize_index(context, row, rows, index.elts[0]) * columns + normalize_index(
        context, column, columns, index.elts[1]
    )
    changed = set_at(flat, position, new)
    matrix = make(*[member(changed, k) for k in range(rows * columns)], type=container.type)
    return context.result(container.type, matrix, [container, part], step)
