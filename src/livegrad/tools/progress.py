"""Displays progress: as one changing line on a terminal, as one line per stage elsewhere, or not at all.

The command line and the tour create a `ProgressLine` and pass it to long operations.
"""

from __future__ import annotations

import shutil
import sys
from typing import TextIO

_WIDTH = 24


class ProgressLine:
    """Displays the current stage and its progress. `mesh`, `render` and `slice_part` take it as a callback.

    With `shown=None`, it is displayed if the stream is a terminal. With `stages`, other streams get a line per stage.

    >>> import io
    >>> stream = io.StringIO()
    >>> with ProgressLine(stream, shown=True) as progress:
    ...     progress("meshing", 0.5)
    >>> stream.getvalue().split(chr(13))[1].rstrip()
    '[############            ]  50 % meshing'
    """

    def __init__(self, stream: TextIO | None = None, *, shown: bool | None = None, stages: bool = False) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._shown = self._stream.isatty() if shown is None else shown
        self._stages = stages and not self._shown
        self._last = ""
        self._stage = ""

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *error: object) -> None:
        if self._last:
            self._write("")
            self._stream.write("\r")
            self._stream.flush()

    def __call__(self, stage: str, fraction: float) -> None:
        """Redraws the line if it changed."""
        fraction = min(max(fraction, 0.0), 1.0)
        bar = ("#" * int(fraction * _WIDTH)).ljust(_WIDTH)
        # A line that wraps at the edge of the terminal could not be overwritten.
        line = f"[{bar}] {fraction * 100:3.0f} % {stage}"[: max(shutil.get_terminal_size().columns - 1, 1)]
        if self._shown and line != self._last:
            self._write(line)
        elif self._stages and stage != self._stage:
            self._stage = stage
            self._stream.write(f"{fraction * 100:3.0f} % {stage}\n")
            self._stream.flush()

    def _write(self, line: str) -> None:
        self._stream.write("\r" + line.ljust(len(self._last)))
        self._stream.flush()
        self._last = line
