"""Emits min and max speculatively: one instruction each, with a check of the results and an exact fallback.

Python's `max(a, b)` is a comparison and a select, because of NaN and signed zeros. The device has a single instruction
that treats these differently. In code of sums, products, roots, min and max, points where the two differ have a result
that is NaN or zero. Such code is therefore emitted twice: a fast version, and an exact version for those few points.
Called by `kernel.py`. For a distance function of 310 operations, it saves 24 of 316 instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from livegrad.codegen.c.operands import Text, Value
from livegrad.codegen.cuda.kernel_writer import KernelWriter
from livegrad.ir.leaves import constant_op, parameter_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import f32
from livegrad.ir.walk import nodes_of

# Ops that propagate NaN, and for which the sign of a zero matters only if the result is zero.
_HARMLESS = frozenset({"add", "sub", "mul", "neg", "abs", "sqrt", "min", "max"})
_FEWEST_CHOICES = 8  # min and max without constant operands


def may_speculate(function: Function) -> bool:
    """Whether a function has only such ops, enough min and max, and results that are rarely zero."""
    nodes = list(nodes_of(function))
    choices = 0
    for node in nodes:
        if node.type is not f32 or not (node.op in (constant_op, parameter_op) or node.op.name in _HARMLESS):
            return False
        choices += node.op.name in ("min", "max") and not any(o.op is constant_op for o in node.operands)
    return choices >= _FEWEST_CHOICES and all(map(_is_rarely_zero, function.results))


def _is_rarely_zero(result: Node) -> bool:
    return result.op.name in ("add", "sub")


def write_speculated(
    writer: KernelWriter, function: Function, arguments: Sequence[Value], reload: Callable[[], Sequence[Value]]
) -> list[Text]:
    """Emits the fast version of a function, and recomputes results that are NaN or zero.

    `reload` loads the arguments once more, so that the fast version does not have to keep them in registers.
    """
    writer.minmax_propagates_nan = True
    fast = writer.scalars(function, arguments)
    writer.minmax_propagates_nan = False
    results = [Text(writer.name("q"), text.type) for text in fast]
    for result, text in zip(results, fast, strict=True):
        writer.line(f"float {result.text} = {text.text};")
    valid = " && ".join(f"fabsf({result.text}) > 0.0f" for result in results)
    with writer.block(f"if (!({valid}))"):
        exact = writer.scalars(function, reload())
        writer.assign(tuple(results), tuple(exact))
    return results
