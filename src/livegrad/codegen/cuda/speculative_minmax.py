"""Speculative min and max: one instruction each, verified at the end.

Python's `max(a, b)` is a comparison and a select, because of NaN and signed zeros. The device's maximum is one
instruction that ignores NaN. In code of sums, products, roots, min and max, a point for which the two differ gives NaN
or zero in the end. Such code is therefore emitted twice: a fast version, and an exact version for those few points.
`kernel.py` calls it. For a distance function of 310 operations this saves 24 of 316 instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from livegrad.codegen.c.operands import Text, Value
from livegrad.codegen.cuda.kernel_writer import KernelWriter
from livegrad.ir.leaves import constant_op, parameter_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import f32
from livegrad.ir.walk import nodes_of

# What gives NaN for NaN, and to which the sign of a zero matters only if the result is zero too.
_HARMLESS = frozenset({"add", "sub", "mul", "neg", "abs", "sqrt", "min", "max"})
_WORTH_IT = 8  # choices between two numbers of which neither is a constant


def may_speculate(function: Function) -> bool:
    """Whether a function is code of that kind, with choices enough, and results that are seldom zero."""
    nodes = list(nodes_of(function))
    choices = 0
    for node in nodes:
        if node.type is not f32 or not (node.op in (constant_op, parameter_op) or node.op.name in _HARMLESS):
            return False
        choices += node.op.name in ("min", "max") and not any(o.op is constant_op for o in node.operands)
    return choices >= _WORTH_IT and all(map(_is_seldom_zero, function.results))


def _is_seldom_zero(result: Node) -> bool:
    return result.op.name in ("add", "sub")


def write_speculated(
    writer: KernelWriter, function: Function, arguments: Sequence[Value], read_again: Callable[[], Sequence[Value]]
) -> list[Text]:
    """Emits the fast version of a function, and recomputes results that are NaN or zero.

    `read_again` returns the arguments as new values, so that the values computed from them do not stay in registers.
    """
    writer.choices_pass_nan = True
    quick = writer.scalars(function, arguments)
    writer.choices_pass_nan = False
    results = [Text(writer.name("q"), text.type) for text in quick]
    for result, text in zip(results, quick, strict=True):
        writer.line(f"float {result.text} = {text.text};")
    sure = " && ".join(f"fabsf({result.text}) > 0.0f" for result in results)
    with writer.block(f"if (!({sure}))"):
        exact = writer.scalars(function, read_again())
        writer.assign(tuple(results), tuple(exact))
    return results
