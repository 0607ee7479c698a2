"""A scalar function as CUDA C: each node on the text of its operands; branches and loops are those of C."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from livegrad.backends.cpu.emit.traces import execution_order, mentions_traces
from livegrad.backends.cuda import traces
from livegrad.backends.cuda.elementwise import has_rule, write_elementwise
from livegrad.backends.cuda.values import (
    TensorReference,
    Text,
    TraceReference,
    Value,
    leaves_of,
    literal,
    loaded,
)
from livegrad.backends.cuda.writer import Writer
from livegrad.diagnostics import CompileError
from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Function, Node
from livegrad.ir.op import Op
from livegrad.ir.types import Scalar, Trace, Type, components, i64
from livegrad.ir.walk import nodes_of
from livegrad.ops.aggregate import get, get_at, make, set_at
from livegrad.ops.control import check, cond, for_loop, switch, while_loop
from livegrad.ops.indexing import lookup
from livegrad.ops.trace import trace_add, trace_get, trace_new, trace_set, trace_sum
from livegrad.passes.expand import expand_ops

WriteNode = Callable[[Writer, Node, list[Value]], Value]


def _needs_expansion(node: Node) -> bool:
    return node.op.expand is not None and not (node.op.elementwise and has_rule(node))


def write_function(writer: Writer, function: Function, arguments: Sequence[Value]) -> list[Value]:
    """The values of the function's results."""
    if any(map(_needs_expansion, nodes_of(function))):
        function = expand_ops(function, _needs_expansion)
    values: dict[Node, Value] = dict(zip(function.parameters, arguments, strict=True))
    order, copies = execution_order(function.results)
    with writer.function(order):
        for node in order:
            if node in values:
                continue
            operands = [values[operand] for operand in node.operands]
            for place, operand in enumerate(operands):
                if (node, place) in copies and isinstance(operand, TraceReference):
                    operands[place] = traces.copied(writer, operand)
            values[node] = _write_node(writer, node, operands)
    return [values[result] for result in function.results]


def _write_node(writer: Writer, node: Node, operands: list[Value]) -> Value:
    handler = _HANDLERS.get(node.op)
    if handler is not None:
        return handler(writer, node, operands)
    if not node.op.elementwise:
        raise CompileError(f"`{node.op.name}` has no CUDA C", where=node.origin)
    count = len(components(node.type))
    if not count:
        return write_elementwise(writer, node, [_text(operand) for operand in operands])
    rows = [operand if isinstance(operand, tuple) else (operand,) * count for operand in operands]
    return tuple(write_elementwise(writer, node, [_text(p) for p in parts]) for parts in zip(*rows, strict=True))


def _text(value: Value) -> Text:
    assert isinstance(value, Text)
    return value


def _members(value: Value) -> tuple[Value, ...]:
    assert isinstance(value, tuple)
    return value


def _packed(results: Sequence[Value]) -> Value:
    return results[0] if len(results) == 1 else tuple(results)


def _constant(writer: Writer, node: Node, operands: list[Value]) -> Value:
    assert isinstance(node.type, Scalar)
    return Text(literal(node.attribute("value"), node.type), node.type)


def _check_index(writer: Writer, node: Node, index: Text, size: int) -> None:
    bad = f"(unsigned long long){index.text} >= {size}"
    writer.report(bad, f"index out of range for {size} members", node.origin)


def _get_at(writer: Writer, node: Node, operands: list[Value]) -> Value:
    members, index = _members(operands[0]), _text(operands[1])
    _check_index(writer, node, index, len(members))
    result = writer.variables(members[0], initial=True)
    for position, member in enumerate(members[1:], 1):
        with writer.block(f"if ({index.text} == {position})"):
            writer.assign(result, member)
    return result


def _set_at(writer: Writer, node: Node, operands: list[Value]) -> Value:
    members, index = _members(operands[0]), _text(operands[1])
    _check_index(writer, node, index, len(members))
    result = _members(writer.variables(members, initial=True))
    for position, member in enumerate(result):
        with writer.block(f"if ({index.text} == {position})"):
            writer.assign(member, operands[2])
    return result


def _check(writer: Writer, node: Node, operands: list[Value]) -> Value:
    writer.report(f"!{_text(operands[1]).text}", node.attribute("message"), node.origin)
    return operands[0]


def _lookup(writer: Writer, node: Node, operands: list[Value]) -> Value:
    """A read by computed index: out of range is reported, and reads nothing."""
    tensor = operands[0]
    assert isinstance(tensor, TensorReference)
    inside, terms = [], []
    for axis, (index, extent, stride) in enumerate(zip(operands[1:], tensor.extents, tensor.strides, strict=True)):
        wide = writer.value(f"(long long){_text(index).text}", i64).text
        within = writer.condition(f"(unsigned long long){wide} < (unsigned long long){extent}")
        writer.report(f"!{within}", f"index out of range for axis {axis}", node.origin)
        inside.append(within)
        terms.append(f"{wide} * {stride}")
    element = loaded(f"{tensor.pointer}[{' + '.join(terms) or 0}]", tensor.element)
    if not inside:
        return writer.value(element, tensor.element)
    return writer.value(f"{' && '.join(inside)} ? {element} : {literal(0, tensor.element)}", tensor.element)


# --- branches and loops ----------------------------------------------------------------------------------------------


def _zero_like(type: Type) -> Value:
    if isinstance(type, Scalar):
        return Text("0", type)
    if isinstance(type, Trace):
        return TraceReference("0", type.element)
    return tuple(map(_zero_like, components(type)))


def _branches(writer: Writer, functions: Sequence[tuple[str, Function]], arguments: list[Value]) -> Value:
    """Functions under the heads of an if and its elses; their results end up in the same variables."""
    results = writer.variables(tuple(map(_zero_like, functions[0][1].result_types)), initial=False)
    for head, function in functions:
        with writer.block(head):
            writer.assign(results, tuple(write_function(writer, function, arguments)))
    return _packed(_members(results))


def _cond(writer: Writer, node: Node, operands: list[Value]) -> Value:
    heads = [(f"if ({_text(operands[0]).text})", node.attribute("then")), ("else", node.attribute("otherwise"))]
    return _branches(writer, heads, operands[1:])


def _switch(writer: Writer, node: Node, operands: list[Value]) -> Value:
    index, branches = _text(operands[0]).text, node.attribute("branches")
    bad = f"(unsigned long long){index} >= {len(branches)}"
    writer.report(bad, f"switch on a number that has no branch ({len(branches)} branches)", node.origin)
    heads = [(f"{'else ' if number else ''}if ({index} == {number})", f) for number, f in enumerate(branches)]
    return _branches(writer, heads, operands[1:])


def _starting(writer: Writer, values: Sequence[Value]) -> tuple[Value, ...]:
    """Carried values as variables; a trace among them is one that can be written to."""

    def ready(value: Value) -> Value:
        if isinstance(value, tuple):
            return tuple(map(ready, value))
        return traces.ensured(writer, value) if isinstance(value, TraceReference) else value

    return _members(writer.variables(tuple(map(ready, values)), initial=True))


def _leave_when_full(writer: Writer, node: Node) -> None:
    """A loop that remembers does not go on when there is no more memory for it: the run does not count."""
    if mentions_traces(node.attribute("body")):
        writer.uses_traces = True
        writer.line("if (memory.failed) break;")


def _for_loop(writer: Writer, node: Node, operands: list[Value]) -> Value:
    trips, values = _text(operands[0]).text, operands[1:]
    carried = node.attribute("carried")
    state = _starting(writer, values[:carried])
    index = writer.name("i")
    head = f"for (long long {index} = 0; {index} < {trips}; ++{index})"
    if node.attribute("reverse"):
        head = f"for (long long {index} = {trips} - 1; {index} >= 0; --{index})"
    with writer.block(head):
        _leave_when_full(writer, node)
        given = [Text(index, i64), *state, *values[carried:]]
        writer.assign(state, tuple(write_function(writer, node.attribute("body"), given)))
    return state


def _while_loop(writer: Writer, node: Node, operands: list[Value]) -> Value:
    carried, limit = node.attribute("carried"), node.attribute("limit")
    state, captures = _starting(writer, operands[:carried]), operands[carried:]
    index = writer.name("i")
    with writer.block(f"for (long long {index} = 0;; ++{index})"):
        (holds,) = write_function(writer, node.attribute("condition"), [*state, *captures])
        writer.line(f"if (!{_text(holds).text}) break;")
        if limit is not None:
            writer.report(f"{index} >= {limit}", f"the loop ran past its limit of {limit}", node.origin)
            writer.line(f"if ({index} >= {limit}) break;")
        writer.polls = True
        writer.line(f"if (({index} & 1023) == 1023 && *a.interrupt) break;")
        _leave_when_full(writer, node)
        given = [Text(index, i64), *state, *captures]
        writer.assign(state, tuple(write_function(writer, node.attribute("body"), given)))
    return state


_HANDLERS: dict[Op, WriteNode] = {
    constant_op: _constant,
    make: lambda writer, node, operands: tuple(operands),
    get: lambda writer, node, operands: _members(operands[0])[node.attribute("index")],
    get_at: _get_at,
    set_at: _set_at,
    check: _check,
    lookup: _lookup,
    cond: _cond,
    switch: _switch,
    for_loop: _for_loop,
    while_loop: _while_loop,
    trace_new: traces.write_new,
    trace_get: traces.write_get,
    trace_set: traces.write_set,
    trace_add: traces.write_add,
    trace_sum: traces.write_sum,
}


def texts_of(values: Sequence[Value]) -> list[Text]:
    """The scalars that a stage's body gives, in order."""
    return [leaf for value in values for leaf in leaves_of(value) if isinstance(leaf, Text)]
