"""Emits nodes as C: one statement per node, with branches and loops as C control flow.

`write_node` works with any `Writer`: readable C functions (`readable_function.py`) and the kernels of plans
(`codegen/cuda/kernel_writer.py`) share these rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from livegrad.codegen.c.dialect import Dialect
from livegrad.codegen.c.expressions import cast, fits, has_expression
from livegrad.codegen.c.line_writer import Writer
from livegrad.codegen.c.operands import TapeReference, TensorReference, Text, Value
from livegrad.diagnostics import CompileError
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar, Tensor, Type, components, i32, i64, scalar_of
from livegrad.ops.failing import constant_integer
from livegrad.ops.transcendental import is_few_products, pow
from livegrad.passes.expand import expand_ops

Rule = Callable[[Writer, Node, list[Value]], Value]


def expand_for_dialect(function: Function, dialect: Dialect) -> Function:
    """Expands all ops that have no C code in a dialect."""
    return expand_ops(function, lambda node: needs_expansion(node, dialect))


def needs_expansion(node: Node, dialect: Dialect) -> bool:
    """Whether an op must be expanded into simpler ops."""
    op = node.op
    if op is pow:
        return is_few_products(node)
    if op.expand is None or op.name in RULES or _is_geometry(node, dialect):
        return False
    return not (op.elementwise and has_expression(dialect, node))


def _is_geometry(node: Node, dialect: Dialect) -> bool:
    """Whether the dialect has a function for an op on vectors of this size."""
    if node.op.name not in dialect.geometry:
        return False
    sizes = (3,) if node.op.name == "cross" else (2, 3, 4)
    scalar = scalar_of(node.operands[0].type)
    sizes_match = all(len(components(operand.type)) in sizes for operand in node.operands)
    return scalar is not None and scalar.kind == "float" and sizes_match


def may_fail(node: Node) -> bool:
    """Whether an op has a check that may fail with these operands."""
    return node.op.checked and node.op.can_fail(node.operands, node.attributes)


def write_node(writer: Writer, node: Node, operands: list[Value], rules: Mapping[str, Rule]) -> Value:
    """Emits a node by its rule, or as an elementwise op."""
    rule = rules.get(node.op.name)
    if rule is not None:
        return rule(writer, node, operands)
    if _is_geometry(node, writer.dialect):
        assert node.op.code is not None
        text = node.op.code.format(*_texts(writer, node, operands))
        return writer.bind(Text(text, node.type, plain=False), node.type)
    if not node.op.elementwise or isinstance(node.type, Tensor) or not has_expression(writer.dialect, node):
        raise CompileError(f"`{node.op.name}` has no {writer.dialect.name}", where=node.origin)
    return writer.bind(_elementwise(writer, node, operands), node.type)


def _texts(writer: Writer, node: Node, operands: Sequence[Value]) -> list[str]:
    return [writer.text(value, operand.type) for value, operand in zip(operands, node.operands, strict=True)]


# --- elementwise -----------------------------------------------------------------------------------------------------


def _elementwise(writer: Writer, node: Node, operands: list[Value]) -> Value:
    parts = components(node.type)
    if not parts or writer.takes_whole(node):
        return _component(writer, node, node.type, _texts(writer, node, operands))
    rows = [
        writer.members(value, operand.type) if components(operand.type) else (value,) * len(parts)
        for value, operand in zip(operands, node.operands, strict=True)
    ]
    texts = [[writer.text(part, parts[0]) for part in column] for column in zip(*rows, strict=True)]
    return tuple(_component(writer, node, type, column) for type, column in zip(parts, texts, strict=True))


def _component(writer: Writer, node: Node, type: Type, operands: list[str]) -> Text:
    scalar = scalar_of(node.operands[-1].type)
    assert scalar is not None
    if node.op.name == "cast":
        text = _cast(writer, node, scalar, operands[0])
    else:
        if node.op.name in ("floor_div", "mod") and writer.checks and may_fail(node):
            bad = writer.condition(f"{operands[1]} == 0")
            writer.report(bad, "integer division by zero", node.origin)
            operands = [operands[0], f"({bad} ? 1 : {operands[1]})"]
        text = writer.expression(node, operands)
    return Text(text, type, plain=text == operands[0])


def _cast(writer: Writer, node: Node, source: Scalar, text: str) -> str:
    target: Scalar = node.attribute("type")
    condition = fits(writer.dialect, text, source, target) if writer.checks else None
    if condition is not None:
        inside = writer.condition(condition)
        writer.report(f"!{inside}", f"a value does not fit {target}", node.origin)
        text = f"({inside} ? {text} : 0)"
    return cast(writer.dialect, text, source, target)


# --- structure -------------------------------------------------------------------------------------------------------


def _constant(writer: Writer, node: Node, operands: list[Value]) -> Value:
    assert isinstance(node.type, Scalar)
    return Text(writer.dialect.literal(node.attribute("value"), node.type), node.type)


def _make(writer: Writer, node: Node, operands: list[Value]) -> Value:
    return writer.bind(tuple(operands), node.type)


def _get(writer: Writer, node: Node, operands: list[Value]) -> Value:
    return writer.members(operands[0], node.operands[0].type)[node.attribute("index")]


def _set(writer: Writer, node: Node, operands: list[Value]) -> Value:
    members = list(writer.members(operands[0], node.type))
    members[node.attribute("index")] = operands[1]
    return writer.bind(tuple(members), node.type)


def _splat(writer: Writer, node: Node, operands: list[Value]) -> Value:
    return (operands[0],) * len(components(node.type))


def _check_range(writer: Writer, node: Node, operand: Node, index: str, size: int, message: str) -> None:
    """Reports an index outside its range; a constant inside needs no check."""
    integer = constant_integer(operand)
    if writer.checks and (integer is None or not 0 <= integer < size):
        writer.report(f"({writer.dialect.unsigned(64)}){index} >= {size}", message, node.origin)


def _select(writer: Writer, condition: str, first: Value, second: Value, type: Type) -> Value:
    """Selects between two values, component by component if they are decomposed."""
    if isinstance(first, TapeReference) and isinstance(second, TapeReference):
        return TapeReference(f"({condition} ? {first.header} : {second.header})", first.element)
    if isinstance(first, tuple) or isinstance(second, tuple):
        rows = zip(writer.members(first, type), writer.members(second, type), components(type), strict=True)
        return tuple(_select(writer, condition, *row) for row in rows)
    texts = writer.text(first, type), writer.text(second, type)
    text = writer.dialect.choose(writer.types.name(type), condition, *texts)
    return Text(text, type, plain=False)


def _get_at(writer: Writer, node: Node, operands: list[Value]) -> Value:
    value, index = node.operands
    *members, result = writer.members(operands[0], value.type)
    index_text, size = writer.text(operands[1], index.type), len(members) + 1
    _check_range(writer, node, index, index_text, size, f"index out of range for {size} members")
    for position in range(size - 2, -1, -1):
        condition = f"{index_text} == {writer.dialect.position(position, index.type)}"
        result = _select(writer, condition, members[position], result, node.type)
    return writer.bind(result, node.type)


def _set_at(writer: Writer, node: Node, operands: list[Value]) -> Value:
    index, changed = node.operands[1:]
    members = writer.members(operands[0], node.type)
    index_text, size = writer.text(operands[1], index.type), len(members)
    _check_range(writer, node, index, index_text, size, f"index out of range for {size} members")
    positions = [writer.dialect.position(number, index.type) for number in range(size)]
    parts = [
        _select(writer, f"{index_text} == {position}", operands[2], member, changed.type)
        for position, member in zip(positions, members, strict=True)
    ]
    return writer.bind(tuple(parts), node.type)


def _check(writer: Writer, node: Node, operands: list[Value]) -> Value:
    if writer.checks:
        writer.report(f"!{writer.text(operands[1], node.operands[1].type)}", node.attribute("message"), node.origin)
    return operands[0]


def position_of(writer: Writer, tensor: TensorReference, operand: Node, value: Value, extent: str) -> tuple[str, str]:
    """The text of an index, and the condition that it is in range."""
    index, bits = writer.text(value, operand.type), 32 if tensor.short and operand.type is i32 else 64
    if bits == 64 and operand.type is not i64 and constant_integer(operand) is None:
        index = writer.dialect.convert(index, i64)
    return index, f"({writer.dialect.unsigned(bits)}){index} < {extent}"


def _lookup(writer: Writer, node: Node, operands: list[Value]) -> Value:
    """A read by computed index; an index out of range is reported and reads no memory."""
    tensor = writer.tensor(operands[0], node.operands[0])
    if isinstance(node.type, Tensor):
        raise CompileError(
            f"{writer.dialect.name} supports only reads of single elements of tensors", where=node.origin
        )
    inside, terms, proved = [], [], dict(node.attributes).get("in_range", ())
    dimensions = zip(node.operands[1:], operands[1:], tensor.extents, tensor.strides, strict=True)
    for axis, (operand, value, extent, stride) in enumerate(dimensions):
        integer = constant_integer(operand)
        index, condition = position_of(writer, tensor, operand, value, extent)
        is_inside = integer is not None and extent.isdigit() and 0 <= integer < int(extent)
        is_inside = is_inside or axis in proved
        if writer.checks and not is_inside:
            if (index, extent) not in writer.inside:  # otherwise it has been checked before
                condition = writer.condition(condition)
                writer.report(f"!{condition}", f"index out of range for axis {axis}", node.origin)
                writer.inside[index, extent] = condition
            inside.append(writer.inside[index, extent])
        terms.append(index if stride == "1" else f"{index} * {stride}")
    text = writer.dialect.read(tensor.pointer, " + ".join(terms) or "0", tensor.element)
    if inside:
        text = f"({' && '.join(inside)} ? {text} : {writer.dialect.literal(0, tensor.element)})"
    return writer.bind(Text(text, node.type, plain=False), node.type)


def _call(writer: Writer, node: Node, operands: list[Value]) -> Value:
    return writer.bind(writer.invoke(node.attribute("function"), operands), node.type)


# --- branches and loops ----------------------------------------------------------------------------------------------


def _branches(writer: Writer, node: Node, functions: Iterable[tuple[str, Function]], arguments: list[Value]) -> Value:
    """Emits functions as branches of an `if` statement; their results are assigned to the same variables."""
    result = writer.declare(node.type)
    for head, function in functions:
        with writer.block(head):
            writer.assign(result, writer.invoke(function, arguments), node.type)
    return result


def _cond(writer: Writer, node: Node, operands: list[Value]) -> Value:
    condition = writer.text(operands[0], node.operands[0].type)
    heads = [(f"if ({condition})", node.attribute("then")), ("else", node.attribute("otherwise"))]
    return _branches(writer, node, heads, operands[1:])


def _switch(writer: Writer, node: Node, operands: list[Value]) -> Value:
    index, branches = writer.text(operands[0], node.operands[0].type), node.attribute("branches")
    message = f"switch index out of range ({len(branches)} branches)"
    _check_range(writer, node, node.operands[0], index, len(branches), message)
    if len(branches) == 1:
        return writer.bind(writer.invoke(branches[0], operands[1:]), node.type)
    positions = [writer.dialect.position(number, node.operands[0].type) for number in range(len(branches) - 1)]
    heads = [f"{'else ' if number else ''}if ({index} == {position})" for number, position in enumerate(positions)]
    return _branches(writer, node, zip([*heads, "else"], branches, strict=True), operands[1:])


def _for_loop(writer: Writer, node: Node, operands: list[Value]) -> Value:
    iterations, carried = writer.text(operands[0], node.operands[0].type), node.attribute("carried")
    state = writer.declare(node.type, operands[1 : carried + 1])
    index = writer.name("i")
    count = writer.dialect.count_down if node.attribute("reverse") else writer.dialect.count_up
    with writer.block(count(index, iterations)):
        writer.begin_iteration(node, index)
        _emit_iteration(writer, node, index, state, operands[carried + 1 :])
    return state


def _while_loop(writer: Writer, node: Node, operands: list[Value]) -> Value:
    carried, limit = node.attribute("carried"), node.attribute("limit")
    state, captures = writer.declare(node.type, operands[:carried]), operands[carried:]
    index = writer.name("i")
    with writer.block(writer.dialect.count_up(index, None)):
        condition: Function = node.attribute("condition")
        holds = writer.invoke(condition, [*writer.members(state, node.type), *captures])
        writer.leave_loop(f"!{writer.text(holds, condition.result_type)}")
        if limit is not None:
            if writer.checks:
                writer.report(f"{index} >= {limit}", f"the loop ran past its limit of {limit}", node.origin)
            writer.leave_loop(f"{index} >= {limit}")
        writer.begin_iteration(node, index)
        _emit_iteration(writer, node, index, state, captures)
    return state


def _emit_iteration(writer: Writer, node: Node, index: str, state: Value, captures: list[Value]) -> None:
    """Emits one iteration of a loop and updates the carried values."""
    body: Function = node.attribute("body")
    results = writer.invoke(body, [Text(index, i64), *writer.members(state, node.type), *captures])
    writer.assign(state, (results,) if len(body.results) == 1 else results, node.type)


RULES: dict[str, Rule] = {
    "constant": _constant,
    "make": _make,
    "get": _get,
    "set": _set,
    "splat": _splat,
    "get_at": _get_at,
    "set_at": _set_at,
    "detach": lambda writer, node, operands: operands[0],
    "check": _check,
    "lookup": _lookup,
    "call": _call,
    "cond": _cond,
    "switch": _switch,
    "for_loop": _for_loop,
    "while_loop": _while_loop,
}
