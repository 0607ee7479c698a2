"""The report of a command: data for programs and lines for people. Created by commands, printed by `cli`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from livegrad.diagnostics import UsageError


class CommandError(UsageError):
    """A command that is written wrongly, whatever files hold: options that exclude each other, a name of no kind."""

    code = "command"


@dataclass(frozen=True)
class Report:
    """What a command found or wrote: `facts` for programs, `lines` for people."""

    facts: dict[str, Any]
    lines: list[str] = field(default_factory=list)
    failed: bool = False


def require_folder(output: Path) -> None:
    """An error unless the file can be written; said before the work, not after it."""
    if not output.absolute().parent.is_dir():
        raise UsageError(
            f"there is no folder `{output.parent}` to write to", help="make it, or choose another --output"
        )
    if output.is_dir():
        raise UsageError(f"`{output}` is a folder, not a file", help="choose another --output")


def require_suffix(output: Path, *allowed: str) -> None:
    """An error unless the name says which kind of file it is to be."""
    if output.suffix.lower() not in allowed:
        raise CommandError(
            f"cannot tell what kind of file `{output.name}` is to be",
            expected="a name that ends in " + " or ".join(allowed),
        )
    require_folder(output)
