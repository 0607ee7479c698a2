"""Emits elementwise ops as C expressions, by kind of scalar.

The `code` of an op record is used for floats, and for every kind for which it is correct. The tables here define
wrapping integers and booleans. Ops without a single expression are expanded. `body.py` emits the checks that some ops
need; the reductions of `codegen/cuda` use the same expressions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from livegrad.codegen.c.aggregates import Types
from livegrad.codegen.c.dialect import Dialect
from livegrad.codegen.c.helpers import has_helper
from livegrad.diagnostics import CompileError
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Scalar, bf16, f16, f32, scalar_of

_CALL = re.compile(r"([a-z0-9_]+)(\(.*\))")
_ANY_KIND = frozenset({"equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "min", "max"})
_SAME_FOR_FLOATS = frozenset({"add", "sub", "mul", "div", "neg"})
_BOOLEANS = {
    "bit_and": "({0} && {1})", "bit_or": "({0} || {1})", "bit_xor": "({0} != {1})", "bit_not": "(!{0})",
    "minimum": "({0} && {1})", "maximum": "({0} || {1})",
}  # fmt: skip
# {T} is the type, and {W} the unsigned type of at least 32 bits that wraps round: in C, no other integer does.
_INTEGERS = {
    "add": "(({T})(({W}){0} + ({W}){1}))",
    "sub": "(({T})(({W}){0} - ({W}){1}))",
    "mul": "(({T})(({W}){0} * ({W}){1}))",
    "bit_and": "(({T})({0} & {1}))",
    "bit_or": "(({T})({0} | {1}))",
    "bit_xor": "(({T})({0} ^ {1}))",
    "bit_not": "(({T})(~{0}))",
    "neg": "(({T})(0 - ({W}){0}))",
    "minimum": "({1} < {0} ? {1} : {0})",
    "maximum": "({1} > {0} ? {1} : {0})",
}
_SIGNED = {"abs": "({0} < 0 ? ({T})(0 - ({W}){0}) : {0})"}
_UNSIGNED = {"abs": "{0}", "floor_div": "(({T})({0} / {1}))", "mod": "(({T})({0} % {1}))"}


def _template(op: Op, scalar: Scalar) -> str | None:
    """The C of an op on operands {0}, {1} of one type; None if it has to be expanded."""
    kind, code = scalar.kind, op.code
    if code is None or op.name in ("select", "detach"):
        return code
    if kind == "complex" or scalar is bf16:
        return None  # kernels only copy them
    if kind == "float" or op.name in _ANY_KIND:
        return code
    if kind == "bool":
        return _BOOLEANS.get(op.name)
    if kind == "unsigned" and scalar.bits >= 32 and op.name in ("add", "sub", "mul"):
        return code
    template = (_INTEGERS | (_SIGNED if kind == "signed" else _UNSIGNED)).get(op.name)
    return template or (code if code.startswith("lg_") else None)


@lru_cache(maxsize=4096)
def _dialect_template(dialect: Dialect, op: Op, scalar: Scalar) -> str | None:
    """The template in a dialect, with the name of its function for a scalar type."""
    override = dialect.overrides.get((op.name, scalar.name))
    text = override or (None if dialect.is_complete else _template(op, scalar))
    call = None if text is None else _CALL.fullmatch(text)
    if text is None or call is None:
        return text
    name, operands = call.groups()
    if name.startswith("lg_"):
        return f"{name}_{scalar.name}{operands}" if has_helper(dialect, name, scalar) else override
    return text if scalar.bits == 64 or dialect.is_complete else f"{name}{dialect.float_suffix}{operands}"


def has_expression(dialect: Dialect, node: Node) -> bool:
    """Whether an elementwise op is one C expression; otherwise it must be expanded."""
    scalar = scalar_of(node.operands[-1].type) if node.operands else None
    if node.op.name == "select":
        return True
    return scalar is not None and (node.op.name == "cast" or _dialect_template(dialect, node.op, scalar) is not None)


def apply_op(dialect: Dialect, op: Op, scalar: Scalar, operands: Sequence[str]) -> str:
    """The C expression of an op on scalars of one type, without the checks that integers need.

    >>> from livegrad.codegen.c.dialect import CUDA, OPENCL
    >>> from livegrad.ir.types import f32, i32
    >>> from livegrad.ops import add, floor_div, sin
    >>> apply_op(OPENCL, add, f32, ["x", "y"]), apply_op(OPENCL, add, i32, ["x", "y"])
    ('(x + y)', '((int)((uint)x + (uint)y))')
    >>> apply_op(CUDA, sin, f32, ["x"]), apply_op(CUDA, floor_div, i32, ["x", "y"])
    ('sinf(x)', 'lg_floor_div_i32(x, y)')
    """
    text = _dialect_template(dialect, op, scalar)
    if text is None:
        raise CompileError(f"`{op.name}` has no {dialect.name} for {scalar}")
    wide = dialect.unsigned(max(scalar.bits, 32)) if scalar.kind in ("signed", "unsigned") else ""
    return text.format(*operands, T=dialect.scalar(scalar), W=wide)


def takes_whole_vectors(types: Types, node: Node) -> bool:
    """Whether the expression of one component also applies to whole vectors."""
    if node.op.name == "select":
        return not scalar_of(node.operands[0].type) or isinstance(node.operands[0].type, Scalar)
    kinds = {operand.type for operand in node.operands}
    if not types.dialect.whole_vectors or kinds != {node.type} or not types.is_vector(node.type):
        return False
    scalar = scalar_of(node.type)
    if scalar is None or scalar.kind != "float":
        return False
    call = _CALL.fullmatch(_dialect_template(types.dialect, node.op, scalar) or "")
    is_call = call is not None and not call[1].startswith("lg_")
    return node.op.name in _SAME_FOR_FLOATS or is_call


# --- casts -----------------------------------------------------------------------------------------------------------


def cast(dialect: Dialect, text: str, source: Scalar, target: Scalar) -> str:
    """A cast between scalar types."""
    if source is target:
        return text
    if (source.name, target.name) in dialect.casts:
        return dialect.casts[source.name, target.name].format(text)
    if bf16 in (source, target) or "complex" in (source.kind, target.kind):
        raise CompileError(f"{dialect.name} cannot convert {source} to {target}", help="cast to f32 first")
    return dialect.convert(text, target)


def fits(dialect: Dialect, text: str, source: Scalar, target: Scalar) -> str | None:
    """The condition that a float is in the range of an integer type, or None if every value is."""
    if source.kind != "float" or target.kind not in ("signed", "unsigned"):
        return None
    low = -(2 ** (target.bits - 1)) if target.kind == "signed" else 0
    high = 2 ** (target.bits - 1 if target.kind == "signed" else target.bits)
    computed = f32 if source is f16 else source
    # Every float above low - 1 truncates into the range, if the float type has the number low - 1.
    below = computed.dtype.type(low - 1)
    exact = bool(np.isfinite(below)) and int(below) == low - 1
    bound = f"> {dialect.literal(low - 1, computed)}" if exact else f">= {dialect.literal(low, computed)}"
    return f"({text} {bound} && {text} < {dialect.literal(high, computed)})"
