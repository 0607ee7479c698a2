"""The report of a command: data for programs and lines for people. Commands create it, and `cli.py` prints it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from livegrad.diagnostics import UsageError


class CommandError(UsageError):
    """Invalid arguments of a command, such as options that exclude each other, or an unknown kind of file."""

    code = "command"


@dataclass(frozen=True)
class Report:
    """The result of a command: `facts` for programs, `lines` for people."""

    facts: dict[str, Any]
    lines: list[str] = field(default_factory=list)
    failed: bool = False


def require_folder(output: Path) -> None:
    """Checks that an output file can be written, before the work starts."""
    if not output.absolute().parent.is_dir():
        raise UsageError(
            f"there is no folder `{output.parent}` to write to", help="create it, or choose another --output"
        )
    if output.is_dir():
        raise UsageError(f"`{output}` is a folder, not a file", help="choose another --output")


def require_suffix(output: Path, *allowed: str) -> None:
    """Checks that a file name has one of the allowed suffixes."""
    if output.suffix.lower() not in allowed:
        raise CommandError(
            f"cannot tell the format of `{output.name}`",
            expected="the suffix " + " or ".join(allowed),
        )
    require_folder(output)
