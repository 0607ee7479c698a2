"""Watched files: saving a `.py` file gives the blocks that were made from it new code, at the next frame.

`watch` makes a block from a function in a file. The engine asks before each frame whether the file has changed; a file
that cannot be read, or does not run, leaves the block as it was and puts the error into `block.debug`.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from livegrad.authoring.block.bodies import block, replace_body
from livegrad.diagnostics import LivegradError, TextOrigin
from livegrad.engine.engine import Engine
from livegrad.engine.graph import Block, Body
from livegrad.engine.problems import GraphError, raised_at


def watch(
    engine: Engine, path: str | Path, function: str, *, name: str | None = None, outputs: tuple[str, ...] = ("result",)
) -> Block:
    """Adds a block that computes a function of a file, and follows the file.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> source = Path(folder.name) / "shade.py"
    >>> _ = source.write_text("def shade(x=2.0):\\n    return x + 1.0\\n")
    >>> engine = Engine()
    >>> shade = watch(engine, source, "shade")
    >>> _ = engine.step(), source.write_text("def shade(x=2.0):\\n    return x * 10.0\\n")
    >>> engine.step().level.name, float(engine.read(shade))
    ('CODE', 20.0)
    >>> folder.cleanup()
    """
    file = Path(path)
    made = engine.add(block(load_function(file, function), name=name or function, outputs=outputs))
    load = lambda: replace_body(made, load_function(file, function))  # noqa: E731
    engine.before_frame.append(FileWatch(engine, made, [file], load))
    return made


def load_function(path: Path, name: str) -> Callable[..., Any]:
    """A function from a file, run anew."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise GraphError(f"cannot read `{path.name}`: {error.strerror}", help="the last code runs on") from error
    linecache.checkcache(str(path))
    names: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    try:
        exec(compile(text, str(path), "exec"), names)
    except SyntaxError as error:
        where = TextOrigin(str(path), error.lineno or 1, error.offset)
        raise GraphError(f"`{path.name}` is no Python: {error.msg}", where=where) from error
    except Exception as error:
        raise GraphError(f"`{path.name}` raised {type(error).__name__}: {error}", where=raised_at(error)) from error
    if not callable(names.get(name)):
        raise GraphError(f"`{path.name}` has no function `{name}`", help="the last code runs on")
    return names[name]


class FileWatch:
    """Files behind one block: when one of them changes, the block gets what `load` makes of them."""

    def __init__(self, engine: Engine, target: Block, paths: Sequence[Path], load: Callable[[], Body]) -> None:
        self._engine, self._target, self._paths, self._load = engine, target, paths, load
        self._seen = self._stamps()
        self._error: LivegradError | None = None

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(path) for path in self._paths]

    def __call__(self) -> None:
        if self._target.home is None:
            return  # removed; it may be added again
        stamps = self._stamps()
        if stamps == self._seen:
            return
        self._seen = stamps
        if self._error in self._target.debug.errors:
            self._target.debug.errors.remove(self._error)
        self._error = None
        try:
            self._engine.edit(self._target, self._load())
        except LivegradError as error:
            self._error = error
            self._target.debug.errors = [*self._target.debug.errors, error]


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
