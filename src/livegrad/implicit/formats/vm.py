"""Reads `.vm` tapes, text files with one operation per line, as functions of the value IR or as parts."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from livegrad import ops
from livegrad.diagnostics import TextOrigin
from livegrad.implicit.bodies.part import Part
from livegrad.implicit.formats.errors import FormatError, read_error
from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import Scalar, Vector, f32
from livegrad.ops.aggregate import members_of

_MAX_BYTES = 1 << 27
_VARIABLES = {"var-x": 0, "var-y": 1, "var-z": 2}
_OPS: dict[str, tuple[int, Callable[..., Node]]] = {
    "add": (2, ops.add),
    "sub": (2, ops.sub),
    "mul": (2, ops.mul),
    "div": (2, ops.div),
    "min": (2, ops.min),
    "max": (2, ops.max),
    "atan2": (2, ops.atan2),
    "pow": (2, ops.pow),
    "mod": (2, ops.mod),
    "neg": (1, ops.neg),
    "abs": (1, ops.abs),
    "sqrt": (1, ops.sqrt),
    "square": (1, lambda x: x * x),
    "recip": (1, lambda x: 1.0 / x),
    "sin": (1, ops.sin),
    "cos": (1, ops.cos),
    "tan": (1, ops.tan),
    "asin": (1, ops.asin),
    "acos": (1, ops.acos),
    "atan": (1, ops.atan),
    "exp": (1, ops.exp),
    "ln": (1, ops.log),
    "log": (1, ops.log),
    "floor": (1, ops.floor),
    "ceil": (1, ops.ceil),
    "round": (1, ops.round),
}


def parse_vm(text: str, name: str = "shape", *, element: Scalar = f32) -> Function:
    """Parses a tape to a function of position. The last line is its value.

    >>> parse_vm("x var-x\\none const 1\\nd sub x one")
    <function shape(vec<f32, 3>) -> f32>
    """
    position = input_node(Key("position"), Vector(element, 3))
    coordinates = members_of(position)
    values: dict[str, Node] = {}
    last: Node | None = None
    for line_number, line in enumerate(text.splitlines(), 1):
        fields = line.split("#", 1)[0].split()
        if not fields:
            continue
        where = TextOrigin(name, line_number)
        if len(fields) < 2 or fields[0] in values:
            raise FormatError("invalid line of a tape", where=where, expected="`name op operands`", found=line[:60])
        last = values[fields[0]] = _parse_operation(fields[1], fields[2:], values, coordinates, element, where)
    if last is None:
        raise FormatError(f"`{name}` is empty")
    return make_function(name, [position], [last])


def _parse_operation(
    op: str, operands: list[str], values: dict[str, Node], coordinates: list[Node], element: Scalar, where: TextOrigin
) -> Node:
    if op == "const":
        return constant(_parse_constant(operands, where), element)
    if op in _VARIABLES and not operands:
        return coordinates[_VARIABLES[op]]
    rule = _OPS.get(op)
    if rule is None:
        raise FormatError(f"no operation `{op[:40]}`", where=where, expected=", ".join(sorted(_OPS)))
    if len(operands) != rule[0]:
        raise FormatError(f"`{op}` takes {rule[0]} operands", where=where, found=str(len(operands)))
    missing = [operand for operand in operands if operand not in values]
    if missing:
        raise FormatError(f"`{missing[0][:40]}` is used before it is defined", where=where)
    return rule[1](*[values[operand] for operand in operands])


def _parse_constant(operands: list[str], where: TextOrigin) -> float:
    try:
        (text,) = operands
        value = float(np.float32(text))
    except (ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise FormatError("invalid constant", where=where, found=" ".join(operands)[:60])
    return value


def load_vm(path: str | os.PathLike[str], bounds: Any = ((-1, -1, -1), (1, 1, 1)), *, element: Scalar = f32) -> Part:
    """Reads a `.vm` file as a part within the bounds.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "ramp.vm")
    >>> with open(path, "w") as file:
    ...     _ = file.write("_0 var-x\\n_1 const 0.5\\n_2 sub _0 _1\\n")
    >>> load_vm(path)([[1.0, 0.0, 0.0]])
    array([0.5], dtype=float32)
    """
    file = Path(path)
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise FormatError(f"`{file.name}` is too large for a tape", expected=f"at most {_MAX_BYTES} bytes")
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise read_error(path, error) from None
    except UnicodeDecodeError:
        raise FormatError(f"`{file.name}` is not UTF-8 text") from None
    low, high = bounds
    return Part(parse_vm(text, file.name, element=element), (), low, high, file.stem)
