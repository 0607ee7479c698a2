"""Watched files: saving a `.py` file gives the blocks that were made from it new code, at the next frame.

`watch` makes a block from a function in a file. The engine asks before each frame whether the file has changed; a file
that cannot be read, or does not run, leaves the block as it was and puts the error into `block.debug`.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any

from livegrad.authoring.block.bodies import block, edit
from livegrad.diagnostics import LivegradError, TextOrigin
from livegrad.engine.engine import Engine
from livegrad.engine.graph import Block
from livegrad.engine.problems import GraphError


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
    engine.before_frame.append(_Watch(engine, made, file, function))
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
        raise GraphError(f"`{path.name}` raised {type(error).__name__}: {error}") from error
    if not callable(names.get(name)):
        raise GraphError(f"`{path.name}` has no function `{name}`", help="the last code runs on")
    return names[name]


class _Watch:
    """One file behind one block."""

    def __init__(self, engine: Engine, target: Block, path: Path, function: str) -> None:
        self._engine, self._target, self._path, self._function = engine, target, path, function
        self._seen = self._stamp()
        self._error: LivegradError | None = None

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def __call__(self) -> None:
        stamp = self._stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        if self._error in self._target.debug.errors:
            self._target.debug.errors.remove(self._error)
        self._error = None
        try:
            edit(self._engine, self._target, load_function(self._path, self._function))
        except LivegradError as error:
            self._error = error
            self._target.debug.errors = [*self._target.debug.errors, error]
