"""Assigns nodes to devices, and runs a piece of a graph on a device.

Values on a device with its own memory stay there for the next piece; all others are NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from operator import attrgetter
from typing import Any

import numpy as np

from livegrad.diagnostics import LivegradError, SourceLocation
from livegrad.ir.leaves import constant_op, input_op
from livegrad.ir.line_sites import resolve_location
from livegrad.ir.node import Function, Node
from livegrad.ir.types import shape_of
from livegrad.ir.walk import nodes_of, toposort
from livegrad.lazy.compiled_graphs import Compile, Program, find_program
from livegrad.lazy.counts import count
from livegrad.lazy.eviction import release_device_values
from livegrad.lazy.lazy_values import Array, Cell, Value, leaf_of
from livegrad.ops.movement import broadcast, flip, iota, permute, reshape, slice_
from livegrad.ops.placement import transfer
from livegrad.runtime.cpu import compile_function
from livegrad.runtime.reference import apply_node

DEFAULT_DEVICE = "cpu"
# (nodes in order, available values, nodes whose values are wanted) → values
Runner = Callable[[Sequence[Node], Mapping[Node, Any], Sequence[Node]], Sequence[Value]]
ValueObserver = Callable[[Node, Any, Sequence[SourceLocation]], None]  # a node, its value, and its source locations
# Results of these ops are not cached, even if held: recomputing them costs no more than reading their operands.
TRIVIAL = frozenset({broadcast, reshape, permute, slice_, flip, iota, constant_op})
RESIDENT_DEVICES = frozenset({"cuda"})


def _run_native(order: Sequence[Node], values: Mapping[Node, Array], outputs: Sequence[Node]) -> list[Array]:
    return _run_compiled(order, values, outputs, compile_function)


@cache
def _cuda() -> Any:
    """Imports the GPU backend on first use: the import is slow, and programs on the CPU do not need it."""
    backend = import_module("livegrad.runtime.cuda")
    backend.make_room.append(release_device_values)
    return backend


def _run_cuda(order: Sequence[Node], values: Mapping[Node, Value], outputs: Sequence[Node]) -> Sequence[Value]:
    """Runs on the first GPU. Transferred values are uploaded once and stay there; so do results."""
    backend = _cuda()
    available: dict[Node, Value] = dict(values)
    for node in order:
        if node in available or not node.operands or node.operands[0] not in available:
            continue
        source = available[node.operands[0]]
        if node.op is transfer:
            available[node] = backend.DeviceArray.from_host(source) if isinstance(source, np.ndarray) else source
        elif (
            node.op is slice_ and not isinstance(source, np.ndarray) and (part := _slice_rows(node, source)) is not None
        ):
            available[node] = part  # an input, so the next batch of a data set runs the same program
    missing = [node for node in outputs if node not in available]
    if missing:
        needed = toposort(missing, stop=available.__contains__)
        run = partial(_run_compiled, needed, available, missing, backend.compile_chosen())
        available.update(zip(missing, run(lambda program, arguments: program.run_on_device(arguments)), strict=True))
    return [available[node] for node in outputs]


def device_compiler() -> object:
    """What compiles functions for the device with the data. Plans of another one are not used any more."""
    return _cuda().current_compiler()


def device_plan(function: Function) -> Any:
    """The plan of a function for the device that holds data. Other arguments are numbers or NumPy arrays."""
    return _cuda().compile_chosen()(function).plan()


def _slice_rows(node: Node, source: Any) -> Any:
    """Returns a contiguous slice of a device array as a view of its memory; None if the slice is not contiguous."""
    start, step, shape = node.attribute("start"), node.attribute("step"), shape_of(node.type)
    if not shape or shape[1:] != source.shape[1:] or step[0] != 1 or any(start[1:]):
        return None
    return source.rows(start[0], shape[0])


def _run_compiled(
    order: Sequence[Node],
    values: Mapping[Node, Any],
    outputs: Sequence[Node],
    compile: Compile,
    run: Callable[[Program, list[Any]], list[Any]] = lambda program, arguments: program.run(arguments),
) -> list[Any]:
    program, graph, fresh = find_program(order, values, outputs, compile)
    try:
        results = run(program, graph.arguments)
    except LivegradError as error:
        resolve_location(error, graph.source_locations)
        raise
    count(
        kernels_run=program.kernels,
        library_calls=program.library_calls,
        programs_compiled=fresh,
        programs_reused=not fresh,
    )
    return results


def run_by_node(
    order: Sequence[Node],
    values: Mapping[Node, Array],
    outputs: Sequence[Node],
    observe: ValueObserver = lambda node, value, lines: None,
    locations_of: Callable[[Node], Sequence[SourceLocation]] = attrgetter("origins"),
) -> list[Array]:
    """Runs node by node with NumPy: slow and obvious. Passes each value to `observe` as soon as it is computed."""
    computed: dict[Node, Any] = dict(values)
    call = partial(_run_function, observe)
    with np.errstate(all="ignore"):
        for node in order:
            if node not in computed:
                computed[node] = apply_node(node, [computed[operand] for operand in node.operands], call)
            observe(node, computed[node], locations_of(node))
    return [np.array(computed[node], order="C") for node in outputs]


def _run_function(observe: ValueObserver, function: Function, *arguments: Any) -> Any:
    """Evaluates a function that is an attribute of a node, such as the body of a loop."""
    values: dict[Node, Any] = dict(zip(function.parameters, arguments, strict=True))
    call = partial(_run_function, observe)
    for node in nodes_of(function):
        if node not in values:
            values[node] = apply_node(node, [values[operand] for operand in node.operands], call)
            observe(node, values[node], function.origins_of(node))
    results = tuple(values[result] for result in function.results)
    return results[0] if len(results) == 1 else results


RUNNERS: dict[str, Runner] = {DEFAULT_DEVICE: _run_native, "reference": run_by_node, "cuda": _run_cuda}


def is_broadcast_constant(node: Node) -> bool:
    """Whether a node is a broadcast or rearranged constant; these are recomputed wherever they are used."""
    return node.op in TRIVIAL and all(operand.op is constant_op for operand in node.operands)


def assign_devices(order: Sequence[Node]) -> dict[Node, str]:
    """Assigns each node a device: its transfer target, else the device of its first operand that is not on the host.

    Nodes computed only from constants take the device of their first user.
    """
    devices: dict[Node, str | None] = {}
    for node in order:
        cell: Cell | None = node.cell
        if cell is not None and cell.value is not None and not is_broadcast_constant(node):
            devices[node] = cell.device
        elif (leaf := leaf_of(node)) is not None:
            devices[node] = DEFAULT_DEVICE if isinstance(leaf.array, np.ndarray) else leaf.array.device
        elif node.op is transfer:
            devices[node] = node.attribute("device")
        elif node.operands:
            operand_devices = [devices[operand] for operand in node.operands if devices[operand] is not None]
            devices[node] = next(
                (device for device in operand_devices if device != DEFAULT_DEVICE),
                operand_devices[0] if operand_devices else None,
            )
        else:
            devices[node] = DEFAULT_DEVICE if node.op is input_op else None
    for node in reversed(order):
        devices[node] = devices[node] or DEFAULT_DEVICE
        for operand in node.operands:
            if operand in devices:  # operands of cached nodes are not in the order
                devices[operand] = devices[operand] or devices[node]
    return {node: device or DEFAULT_DEVICE for node, device in devices.items()}
