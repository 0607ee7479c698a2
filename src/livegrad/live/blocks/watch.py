"""Watched files: saving a `.py` file updates the code of its blocks at the next frame.

`watch` creates a block from a function in a file. Before each frame, the engine checks whether the file or a user
module that it imports has changed. If the file cannot be read or fails, the block keeps its code, and the problem is
reported in the frame and in `block.debug` until the file is saved again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from livegrad.diagnostics import LivegradError, TextOrigin, UsageError, caller_origin, shown
from livegrad.live.blocks.bodies import block, replace_body
from livegrad.live.blocks.source_files import KEEPS_RUNNING, SourceFile, Stamp, stamp_of
from livegrad.live.engine import Engine
from livegrad.live.graph.block import Block, Body
from livegrad.live.graph.problems import GraphError


def watch(
    engine: Engine, path: str | Path, function: str, *, name: str | None = None, outputs: tuple[str, ...] = ("result",)
) -> Block:
    """Adds a block that computes a function from a file, and reloads it when the file or a module it imports is saved.

    Removing the block stops watching; adding it again resumes.

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
    if not isinstance(engine, Engine) or not isinstance(path, str | Path) or not isinstance(function, str):
        raise UsageError(
            "`watch` takes an engine, a file and the name of a function in it",
            where=caller_origin(),
            found=", ".join(shown(argument, 40) for argument in (engine, path, function)),
            help='write lg.live.watch(engine, "shade.py", "shade")',
        )
    source = SourceFile(Path(path))
    target = block(_load_first_function(source, function), name=name or function, outputs=outputs)
    follow(target, source.files, lambda: _make_next_body(target, source.load(function)))
    return engine.add(target)


def _load_first_function(source: SourceFile, function: str) -> Callable[..., Any]:
    """Loads the function for the first time. Errors do not mention running code, because none runs yet."""
    try:
        return source.load(function)
    except GraphError as error:
        if error.help == KEEPS_RUNNING:
            error.help = f"the file is {source.path.resolve()}"
        error.move_to(error.where or caller_origin())
        raise


def _make_next_body(target: Block, function: Callable[..., Any]) -> Body:
    """Makes the new body of a block. Errors about the function refer to its line."""
    try:
        return replace_body(target, function)
    except UsageError as error:
        code = getattr(function, "__code__", None)
        error.move_to(error.where if code is None else TextOrigin(code.co_filename, code.co_firstlineno))
        raise


def follow(target: Block, files: Callable[[], Mapping[Path, Stamp | None]], load: Callable[[], Body]) -> None:
    """Replaces the body of a block by `load()` whenever one of its files changes, once the block is in an engine.

    `files` gives the stamps as of the last load.
    """
    target.watch = FileWatch(target, files, load)


class FileWatch:
    """The files of one block, and their errors."""

    def __init__(
        self, target: Block, files: Callable[[], Mapping[Path, Stamp | None]], load: Callable[[], Body]
    ) -> None:
        self.block = target
        self.error: LivegradError | None = None
        self._files, self._load = files, load
        self._stamps = dict(files())

    def poll(self) -> None:
        """Edits the block if a file has changed since the last time."""
        stamps = {path: stamp_of(path) for path in self._files()}
        graph = self.block.home
        if stamps == self._stamps or graph is None:
            return
        try:
            graph.edit(self.block, self._load())
            self.error = None
        except LivegradError as error:
            self.error = error
        # Last, so that an interrupted load is retried. Calls `files` again, because the load may import other modules.
        self._stamps = {path: stamps.get(path, stamp) for path, stamp in self._files().items()}
