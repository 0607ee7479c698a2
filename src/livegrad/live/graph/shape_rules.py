"""Evaluates shape rules, which are text, on the shapes of a block's inputs. The compiler checks outputs with them.

"same"            the shape of the only (or first) input
"same(1)"         the shape of input 1
"broadcast(0,1)"  the shape that inputs 0 and 1 broadcast to
"[N, 16]"         N, M, … are the sizes of input 0, in order
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from livegrad.diagnostics import UsageError

Shape = tuple[int, ...]
_CALL = re.compile(r"(same|broadcast)(?:\(([\d,\s]*)\))?$")


def apply_shape_rule(rule: str, shapes: Sequence[Shape]) -> Shape:
    """The output shape of a rule for inputs of these shapes.

    >>> apply_shape_rule("broadcast(0,1)", [(4, 1), (3,)]), apply_shape_rule("[N, 16]", [(8, 2)])
    ((4, 3), (8, 16))
    """
    text = rule.strip()
    call = _CALL.match(text)
    if call is not None:
        indices = [int(part) for part in (call[2] or "").split(",") if part.strip()]
        if call[1] == "same":
            return _shape_of_input(shapes, indices[0] if indices else 0, rule)
        chosen = [_shape_of_input(shapes, index, rule) for index in indices] if indices else list(shapes)
        try:
            return tuple(np.broadcast_shapes(*chosen))
        except ValueError:
            raise UsageError(f"shapes do not broadcast under `{rule}`", found=", ".join(map(str, chosen))) from None
    if text.startswith("[") and text.endswith("]"):
        return _evaluate_sizes(text, shapes, rule)
    raise UsageError(f"`{rule}` is not a shape rule", expected="same, same(0), broadcast(0,1) or [N, 16]")


def _shape_of_input(shapes: Sequence[Shape], index: int, rule: str) -> Shape:
    if index >= len(shapes):
        raise UsageError(f"`{rule}` names input {index}", found=f"{len(shapes)} inputs")
    return shapes[index]


def _evaluate_sizes(text: str, shapes: Sequence[Shape], rule: str) -> Shape:
    parts = [part.strip() for part in text[1:-1].split(",") if part.strip()]
    names: dict[str, int] = {}
    first = shapes[0] if shapes else ()
    result = []
    for part in parts:
        if part.isdecimal():
            result.append(int(part))
            continue
        if part not in names:
            if len(names) >= len(first):
                raise UsageError(f"`{rule}` has more names than the dimensions of input 0", found=str(first))
            names[part] = first[len(names)]
        result.append(names[part])
    return tuple(result)
