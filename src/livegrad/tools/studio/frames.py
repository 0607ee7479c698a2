"""What a frame did, as JSON: the level of each block that ran, times, and problems with message and line.

In: a `Frame` and the description of its engine. Out: dictionaries. Called by `session.py` after each frame.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from livegrad.diagnostics import LivegradError
from livegrad.frontend.function.captured import CapturedFunction
from livegrad.frontend.function.python_source import capture
from livegrad.live.blocks.bodies import TracedBody
from livegrad.live.frame import Frame
from livegrad.live.graph.block import Block
from livegrad.tools.studio.describe import Describer
from livegrad.tools.studio.values import Json

_MAX_PROBLEMS = 100
_NOT_A_LINE = 0


def describe_frame(frame: Frame, describer: Describer) -> Json:
    """What a frame did."""
    blocks = describer.block_by_key
    ran: dict[str, int] = {}
    for key in frame.ran:
        if key in blocks:
            change = frame.changes.get(key)
            ran[describer.id_of(blocks[key])] = 0 if change is None else int(change.level)
    for key, change in frame.changes.items():
        if key in blocks:
            ran[describer.id_of(blocks[key])] = int(change.level)
    seconds = {describer.id_of(blocks[key]): time for key, time in (frame.seconds or {}).items() if key in blocks}
    return {
        "number": frame.number,
        "level": frame.level.name.lower(),
        "ran": ran,
        "seconds": seconds,
        "problems": _problems(frame, describer),
        "warnings": [str(warning) for warning in frame.warnings],
    }


def _problems(frame: Frame, describer: Describer) -> list[Json]:
    """Why the graph does not run as described, and the steps that failed. Dependents share the error of a step."""
    problems = [describe_error(problem.error, problem.block, describer, problem.pin) for problem in frame.problems]
    described: set[int] = set()
    for key in sorted(frame.failed):
        block = describer.block_by_key.get(key)
        for error in [] if block is None else block.debug.errors[-1:]:
            if id(error) not in described:
                described.add(id(error))
                problems.append(describe_error(error, block, describer))
    return problems[:_MAX_PROBLEMS]


def describe_error(
    error: LivegradError, block: Block | None = None, describer: Describer | None = None, pin: str | None = None
) -> Json:
    """An error, with the block, and the line in its text as the editor shows it (0: elsewhere)."""
    where = error.where
    described: Json = {
        "message": error.what,
        "where": None if where is None else str(where),
        "expected": error.expected,
        "found": error.found,
        "help": error.help,
        "line": _NOT_A_LINE if where is None else where.line,
    }
    if block is not None and describer is not None:
        line = _NOT_A_LINE if where is None else _line_in_text(block, where.file, where.line)
        described |= {"block": describer.id_of(block), "name": block.name, "pin": pin, "line": line}
    return described


def _line_in_text(block: Block, file: str, line: int) -> int:
    """The line of a block's text that a line of a file is, from 1."""
    body = getattr(block, "body", None)
    target: Any = body.function if isinstance(body, TracedBody) else None
    python = target.python_function if isinstance(target, CapturedFunction) else target
    if not isinstance(python, FunctionType) or python.__code__.co_filename != file:
        return _NOT_A_LINE
    try:
        first = capture(python).definition.lineno
    except LivegradError:  # the file has changed
        return _NOT_A_LINE
    return line - first + 1 if line >= first else _NOT_A_LINE


def describe_reason(frame: Frame, block: Block, describer: Describer) -> str:
    """Why a block ran in a frame, or why not."""
    for key, candidate in describer.block_by_key.items():
        if candidate is block and key in frame.reasons:
            return f"ran in frame {frame.number}: {frame.reasons[key]}"
        if candidate is block and key in frame.unneeded:
            return f"skipped in frame {frame.number}: no taken branch reads it"
    return f"skipped in frame {frame.number}: none of its inputs changed"
