"""Emits a scalar function as LLVM IR: schedules its nodes, and emits each on the registers of its operands.

Instructions work on all lanes, under the current lane mask. `stages.py` calls it for the bodies of stages, and control
flow (`masked_control.py`, `while_loops.py`) for those of branches and loops.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import lru_cache

from livegrad.codegen.llvm import gather_scatter, masked_control, tapes, while_loops
from livegrad.codegen.llvm.elementwise import emit_elementwise
from livegrad.codegen.llvm.fused_multiply_add import emit_fused, fused_products
from livegrad.codegen.llvm.kernel_builder import KernelBuilder
from livegrad.codegen.llvm.list_scheduling import schedule_instructions
from livegrad.codegen.llvm.registers import NodeValue, Product, Register, TapeReference, TensorReference, as_register
from livegrad.codegen.llvm.subroutines import LONG, emit_call, emit_in_pieces
from livegrad.diagnostics import CompileError
from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Function, Node
from livegrad.ir.op import Op
from livegrad.ir.symbolic_size import SymbolicSize
from livegrad.ir.types import Scalar, bool_, components, scalar_of
from livegrad.ir.walk import functions_in, nodes_of
from livegrad.ops.aggregate import get, get_at, make, set_at
from livegrad.ops.assignment import assign
from livegrad.ops.control import call, check, cond, for_loop, switch, while_loop
from livegrad.ops.indexing import lookup, lookup_or, scatter_add
from livegrad.ops.sorting import searchsorted
from livegrad.ops.tape import tape_add, tape_get, tape_new, tape_set, tape_sum
from livegrad.ops.transcendental import is_few_products, pow
from livegrad.schedule.tile_row_chains import is_checked

EmitNode = Callable[[KernelBuilder, Node, list[NodeValue]], NodeValue]


def lacks_code(node: Node) -> bool:
    """Whether an op must be expanded into simpler ops, because there is no LLVM code for it."""
    if node.op is pow:
        return is_few_products(node)
    if node.op.expand is None or node.op in _HANDLERS:
        return False
    if not node.op.elementwise:
        return True
    scalar = scalar_of(node.operands[-1].type)
    rule = (node.op.llvm or {}).get(scalar.kind) if scalar is not None else None
    return rule is None or rule == "expand"


def emit_function(builder: KernelBuilder, function: Function, arguments: Sequence[NodeValue]) -> list[NodeValue]:
    """The values of the function's results."""
    return [value for value in emit_results(builder, function, arguments, ()) if not isinstance(value, Product)]


def emit_results(
    builder: KernelBuilder, function: Function, arguments: Sequence[NodeValue], added: Container[int]
) -> list[NodeValue | Product]:
    """The values of the results. Results whose index is in `added` are summed, and may be returned as products."""
    results = function.results
    values: dict[Node, NodeValue] = dict(zip(function.parameters, arguments, strict=True))
    order, copies = tapes.execution_order(results)
    fused, single = fused_products(order, results)
    factored = {result for index, result in enumerate(results) if index in added and result in single}
    skipped = {*values, *fused.values(), *factored}
    schedule = [
        node for node in schedule_instructions(order, builder.lanes, builder.vector_bytes) if node not in skipped
    ]
    if len(schedule) > LONG and not copies:
        _emit_in_pieces(builder, schedule, fused, results, factored, values)
        schedule = []
    for node in schedule:
        if copies and node not in fused:
            operands = [values[operand] for operand in node.operands]
            for position, operand in enumerate(operands):
                if (node, position) in copies and isinstance(operand, TapeReference):
                    operands[position] = tapes.copy_tape(builder, operand)
            values[node] = _emit_node(builder, node, operands)
        else:
            values[node] = emit_one(builder, node, fused, values)
    return [_factors(result, values) if result in factored else values[result] for result in results]


def _emit_in_pieces(
    builder: KernelBuilder,
    schedule: Sequence[Node],
    fused: Mapping[Node, Node],
    results: Sequence[Node],
    factored: set[Node],
    values: dict[Node, NodeValue],
) -> None:
    def reads(node: Node) -> Sequence[Node]:
        product = fused.get(node)
        if product is None:
            return node.operands
        return (*product.operands, *[operand for operand in node.operands if operand is not product])

    live_out = [node for result in results for node in (result.operands if result in factored else (result,))]
    emit_in_pieces(
        builder,
        schedule,
        {node: reads(node) for node in schedule},
        live_out,
        values,
        lambda builder_of_piece, node, values_of_piece: emit_one(builder_of_piece, node, fused, values_of_piece),
    )


def emit_one(
    builder: KernelBuilder, node: Node, fused: Mapping[Node, Node], values: dict[Node, NodeValue]
) -> NodeValue:
    """The value of a node; an addition is emitted together with the product that is fused into it."""
    if node in fused:
        return _emit_fused(builder, node, fused[node], values)
    return _emit_node(builder, node, [values[operand] for operand in node.operands])


def _factors(product: Node, values: dict[Node, NodeValue]) -> Product:
    first, second = (as_register(values[operand]) for operand in product.operands)
    return Product(first, second)


def _emit_fused(builder: KernelBuilder, node: Node, product: Node, values: dict[Node, NodeValue]) -> NodeValue:
    left, right = node.operands
    factors = [values[factor] for factor in product.operands]
    factors.append(values[right if left is product else left])
    count = len(components(node.type))
    if not count:
        first, second, addend = map(as_register, factors)
        return emit_fused(builder, node, product, Product(first, second), addend)
    rows = [value if isinstance(value, tuple) else (value,) * count for value in factors]
    return tuple(
        emit_fused(builder, node, product, Product(as_register(a), as_register(b)), as_register(c))
        for a, b, c in zip(*rows, strict=True)
    )


def _emit_node(builder: KernelBuilder, node: Node, operands: list[NodeValue]) -> NodeValue:
    handler = _HANDLERS.get(node.op)
    if handler is not None:
        return handler(builder, node, operands)
    if node.op.elementwise:
        return _emit_components(builder, node, operands)
    raise CompileError(f"`{node.op.name}` has no native code", where=node.origin)


def _emit_components(builder: KernelBuilder, node: Node, operands: list[NodeValue]) -> NodeValue:
    count = len(components(node.type))
    if not count:
        return emit_elementwise(builder, node, [as_register(operand) for operand in operands])
    rows = [operand if isinstance(operand, tuple) else (operand,) * count for operand in operands]
    return tuple(
        emit_elementwise(builder, node, [as_register(part) for part in parts]) for parts in zip(*rows, strict=True)
    )


def _constant(builder: KernelBuilder, node: Node, operands: list[NodeValue]) -> NodeValue:
    assert isinstance(node.type, Scalar)
    value = node.attribute("value")
    if type(value) is SymbolicSize:
        return builder.size_argument(value, node.type)
    return builder.constant(value, node.type)


def _make(builder: KernelBuilder, node: Node, operands: list[NodeValue]) -> NodeValue:
    return tuple(operands)


def _get(builder: KernelBuilder, node: Node, operands: list[NodeValue]) -> NodeValue:
    value = operands[0]
    assert isinstance(value, tuple)
    return value[node.attribute("index")]


def _members(value: NodeValue) -> tuple[NodeValue, ...]:
    assert isinstance(value, tuple)
    return value


def _check_index(builder: KernelBuilder, node: Node, index: Register, size: int) -> None:
    bad = builder.apply("icmp uge", bool_, index, builder.constant(size, index.type))
    builder.report(bad, f"index out of range for {size} members", node.origin)


def _get_at(builder: KernelBuilder, node: Node, operands: list[NodeValue]) -> NodeValue:
    members, index = _members(operands[0]), as_register(operands[1])
    _check_index(builder, node, index, len(members))
    result = members[0]
    for position, value in enumerate(members[1:], 1):
        hit = builder.apply("icmp eq", bool_, index, builder.constant(position, index.type))
        result = masked_control.select_value(builder, hit, value, result)
    return result


def _set_at(builder: KernelBuilder, node: Node, operands: list[NodeValue]) -> NodeValue:
    members, index = _members(operands[0]), as_register(operands[1])
    _check_index(builder, node, index, len(members))
    changed = []
    for position, value in enumerate(members):
        hit = builder.apply("icmp eq", bool_, index, builder.constant(position, index.type))
        changed.append(masked_control.select_value(builder, hit, operands[2], value))
    return tuple(changed)


def _check(builder: KernelBuilder, node: Node, operands: list[NodeValue]) -> NodeValue:
    condition = as_register(operands[1])
    builder.report(
        builder.apply("xor", bool_, condition, builder.constant(True, bool_)), node.attribute("message"), node.origin
    )
    return operands[0]


def _lookup(builder: KernelBuilder, node: Node, operands: list[NodeValue]) -> NodeValue:
    tensor = operands[0]
    assert isinstance(tensor, TensorReference)
    return gather_scatter.emit_lookup(builder, node, tensor, [as_register(index) for index in operands[1:]])


def _lookup_or(builder: KernelBuilder, node: Node, operands: list[NodeValue]) -> NodeValue:
    tensor = operands[0]
    assert isinstance(tensor, TensorReference)
    otherwise, *indices = (as_register(operand) for operand in operands[1:])
    return gather_scatter.emit_lookup_or(builder, tensor, otherwise, indices)


def _searchsorted(builder: KernelBuilder, node: Node, operands: list[NodeValue]) -> NodeValue:
    tensor = operands[0]
    assert isinstance(tensor, TensorReference)
    return gather_scatter.emit_search(builder, tensor, as_register(operands[1]), node.attribute("side") == "right")


def _write(builder: KernelBuilder, node: Node, operands: list[NodeValue]) -> NodeValue:
    """Updates a tensor in place, which is sound because every version of it is used once in such a function."""
    tensor = operands[0]
    assert isinstance(tensor, TensorReference)
    value, *indices = (as_register(operand) for operand in operands[1:])
    gather_scatter.emit_write(builder, node, tensor, value, indices)
    return tensor


def _tape(emit: Callable[..., NodeValue]) -> EmitNode:
    def handler(builder: KernelBuilder, node: Node, operands: list[NodeValue]) -> NodeValue:
        assert isinstance(operands[0], TapeReference)
        return emit(builder, node, *operands)

    return handler


def _call(builder: KernelBuilder, node: Node, operands: list[NodeValue]) -> NodeValue:
    results = emit_call(builder, node.attribute("function"), operands, emit_function)
    return results[0] if len(results) == 1 else tuple(results)


def _cond(builder: KernelBuilder, node: Node, operands: list[NodeValue]) -> NodeValue:
    return masked_control.emit_cond(builder, node, operands, emit_function)


def _switch(builder: KernelBuilder, node: Node, operands: list[NodeValue]) -> NodeValue:
    return masked_control.emit_switch(builder, node, operands, emit_function)


def _for_loop(builder: KernelBuilder, node: Node, operands: list[NodeValue]) -> NodeValue:
    return masked_control.emit_for_loop(builder, node, operands, emit_function)


def _while_loop(builder: KernelBuilder, node: Node, operands: list[NodeValue]) -> NodeValue:
    return while_loops.emit_while_loop(builder, node, operands, emit_function)


_HANDLERS: dict[Op, EmitNode] = {
    constant_op: _constant,
    make: _make,
    get: _get,
    get_at: _get_at,
    set_at: _set_at,
    check: _check,
    lookup: _lookup,
    lookup_or: _lookup_or,
    searchsorted: _searchsorted,
    scatter_add: _write,
    assign: _write,
    call: _call,
    cond: _cond,
    switch: _switch,
    for_loop: _for_loop,
    while_loop: _while_loop,
    tape_new: tapes.emit_new,
    tape_get: _tape(tapes.emit_get),
    tape_set: _tape(tapes.emit_set),
    tape_add: _tape(tapes.emit_add),
    tape_sum: _tape(tapes.emit_sum),
}


@lru_cache(maxsize=4096)
def needs_mask(function: Function) -> bool:
    """Whether lanes past the end must be masked, because they might report an error or not terminate."""
    return bool(functions_in(function)) or any(is_checked(node) for node in nodes_of(function) if node.op.checked)
