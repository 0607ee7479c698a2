"""Devices that graphs run on, by name: which device computes each node, and how a piece of a graph runs there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from livegrad.backends.cpu import compile_function, run_function
from livegrad.backends.reference import apply_node
from livegrad.engine.programs import Compile, find_program
from livegrad.engine.values import Array, Cell, count
from livegrad.ir.leaves import input_op
from livegrad.ir.node import Node
from livegrad.ops.placement import transfer

DEFAULT_DEVICE = "cpu"
# (nodes in order, data of those that are known, nodes whose values are wanted) → values
Runner = Callable[[Sequence[Node], Mapping[Node, Array], Sequence[Node]], list[Array]]


def _run_native(order: Sequence[Node], known: Mapping[Node, Array], wanted: Sequence[Node]) -> list[Array]:
    return _run_compiled(order, known, wanted, compile_function)


def _run_cuda(order: Sequence[Node], known: Mapping[Node, Array], wanted: Sequence[Node]) -> list[Array]:
    """On the first GPU. Its backend is imported here: who stays on the CPU should not wait for its libraries."""
    return _run_compiled(order, known, wanted, import_module("livegrad.backends.cuda").compile_function)


def _run_compiled(
    order: Sequence[Node], known: Mapping[Node, Array], wanted: Sequence[Node], compile: Compile
) -> list[Array]:
    program, arguments, fresh = find_program(order, known, wanted, compile)
    results = program.run(arguments)
    count(
        kernels_run=program.kernels,
        library_calls=program.library_calls,
        programs_compiled=fresh,
        programs_reused=not fresh,
    )
    return results


def run_by_node(
    order: Sequence[Node],
    known: Mapping[Node, Array],
    wanted: Sequence[Node],
    look_at: Callable[[Node, Any], None] = lambda node, value: None,
) -> list[Array]:
    """Node by node, with NumPy: slow and obvious. Every value is shown to `look_at` as soon as it is there."""
    made: dict[Node, Any] = dict(known)
    with np.errstate(all="ignore"):
        for node in order:
            if node not in made:
                made[node] = apply_node(node, [made[operand] for operand in node.operands], run_function)
            look_at(node, made[node])
    return [np.array(made[node], order="C") for node in wanted]


RUNNERS: dict[str, Runner] = {DEFAULT_DEVICE: _run_native, "reference": run_by_node, "cuda": _run_cuda}


def assign_devices(order: Sequence[Node]) -> dict[Node, str]:
    """The device of each node: where it was moved to, else where the first operand lives that is not at home.

    What is made of constants alone has no home: it is made where it is needed.
    """
    devices: dict[Node, str | None] = {}
    for node in order:
        cell: Cell | None = node.cell
        if cell is not None and cell.value is not None:
            devices[node] = cell.device
        elif node.op is transfer:
            devices[node] = node.attribute("device")
        elif node.operands:
            found = [devices[operand] for operand in node.operands if devices[operand] is not None]
            devices[node] = next((device for device in found if device != DEFAULT_DEVICE), found[0] if found else None)
        else:
            devices[node] = DEFAULT_DEVICE if node.op is input_op else None
    for node in reversed(order):
        devices[node] = devices[node] or DEFAULT_DEVICE
        for operand in node.operands:
            if operand in devices:  # the order ends at values that are known
                devices[operand] = devices[operand] or devices[node]
    return {node: device or DEFAULT_DEVICE for node, device in devices.items()}
