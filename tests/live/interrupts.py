"""Raises an exception at a chosen line of the engine, as a signal would, but reproducibly."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from functools import cache, partial
from itertools import takewhile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

import livegrad

_FOLDER = str(Path(livegrad.__file__).parent / "live")
_FINALIZERS = ("__del__", "_release", "free")  # their exceptions are ignored
Result = TypeVar("Result")


class Interrupted(BaseException):
    """An exception that neither livegrad nor Python handles."""


def call_interrupted(call: Callable[[], Result], after: int) -> Result:
    """Calls a function, and raises `Interrupted` after the engine has run `after` of its own lines."""
    left = after

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if event == "line" and frame.f_lasti not in ends_of_with(frame.f_code):
            left -= 1
            if left == 0:
                raise Interrupted
        return local

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(_FOLDER):
            return None
        return None if frame.f_code.co_name in _FINALIZERS else local

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return call()
    finally:
        sys.settrace(before)


@cache
def ends_of_with(code: CodeType) -> frozenset[int]:
    """The instructions where a `with` calls `__exit__`.

    CPython checks for interrupts only after calls, so none can prevent these.
    """
    found = list[int]()
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "PRECALL")]
    for number, step in enumerate(steps):
        calls = [(one.opname, one.argval) for one in steps[number : number + 4]]
        if [name for name, _ in calls[:2]] == ["PUSH_EXC_INFO", "WITH_EXCEPT_START"]:
            found.append(step.offset)
        elif calls[:3] == 3 * [("LOAD_CONST", None)] and calls[3:] == [("CALL", 2)]:
            # The line starts a few instructions earlier, where a value is returned.
            found += (one.offset for one in takewhile(partial(_on_one_line, step), steps[number::-1]))
    return frozenset(found)


def _on_one_line(first: dis.Instruction, second: dis.Instruction) -> bool:
    lines = [None if one.positions is None else one.positions.lineno for one in (first, second)]
    return lines[0] == lines[1]
