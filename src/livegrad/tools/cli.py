"""The command line: `livegrad COMMAND`. The table `COMMANDS` lists the commands and their implementations.

Exit codes: 0 success, 1 an invalid file or failed work, 2 invalid arguments, 130 interrupted. Each command imports its
modules when it runs.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from livegrad.diagnostics import LivegradError, Origin
from livegrad.tools import arguments as add
from livegrad.tools.argument_values import is_object, with_negative_numbers
from livegrad.tools.report import CommandError, Report

_DESCRIPTION = (
    "Live, differentiable compute graphs: a tour, tools for parts in 3MF files and .vm tapes, and compiler inspection."
)
_ENDING = """examples:
  livegrad run                                   fits, draws and edits a part in one live graph; writes out/index.html
  livegrad info part.3mf
  livegrad render part.3mf -o part.png --size 1024x768
  livegrad slice part.3mf -z 12.5 -o layer.svg
  livegrad mesh part.3mf -o part.stl --feature-size 0.2
  livegrad eval part.3mf 1,2,3 --gradient
  livegrad graph scene.py:shade -o shade.svg     the graph of a file, or of an object of a program
  livegrad passes scene.py:shade -o shade.html   the program after every compiler pass
  livegrad explain scene.py:engine
  livegrad replay session.jsonl --trust          replays a recorded session of a live engine, bit by bit
  livegrad doctor                                what this machine offers

exit codes: 0 success, 1 invalid file or failure, 2 invalid arguments, 130 interrupted"""


@dataclass(frozen=True)
class Command:
    """One command: its help line, its implementation, its arguments, and examples."""

    help: str
    run: str  # module:function, which takes the parsed arguments and returns a Report
    arguments: Callable[[argparse.ArgumentParser], None]
    examples: tuple[str, ...]


_HERE = "livegrad.tools"
COMMANDS = {
    "run": Command(
        "the tour: a part is fitted, drawn and edited in one live graph",
        f"{_HERE}.run_command:run",
        add.tour,
        ("livegrad run", "livegrad run --backend cuda --out /tmp/tour"),
    ),
    "info": Command(
        "what a file holds: functions, resources, parts, problems",
        f"{_HERE}.part_commands:show_info",
        add.info,
        ("livegrad info part.3mf", "livegrad info part.3mf --check --json"),
    ),
    "render": Command(
        "a picture of a part, as a PNG file",
        f"{_HERE}.part_commands:render_part",
        add.render,
        (
            "livegrad render part.3mf -o part.png --size 1024x768",
            "livegrad render part.3mf --direction -1,1,-1",
            "livegrad render bracket.py:part                a part, shape or assembly of a program",
        ),
    ),
    "slice": Command(
        "the contours of a part at a height, as an SVG file",
        f"{_HERE}.part_commands:slice_of_part",
        add.slice_,
        ("livegrad slice part.3mf -z 12.5 -o layer.svg",),
    ),
    "mesh": Command(
        "the surface of a part as a closed mesh, as an STL or 3MF file",
        f"{_HERE}.part_commands:mesh_part",
        add.mesh,
        ("livegrad mesh part.3mf -o part.stl --feature-size 0.2",),
    ),
    "eval": Command(
        "the values of a part at points: negative inside",
        f"{_HERE}.part_commands:evaluate_points",
        add.evaluate,
        ("livegrad eval part.3mf 1,2,3 --gradient", "livegrad eval part.3mf --points-file points.csv --json"),
    ),
    "graph": Command(
        "a graph as text, DOT or SVG: of a 3MF file, or of an object",
        f"{_HERE}.object_commands:show_graph",
        add.graph,
        (
            "livegrad graph part.3mf --function main",
            "livegrad graph scene.py:shade -o shade.svg",
            "livegrad graph package.module:make_engine() --format dot | dot -Tpng > engine.png",
        ),
    ),
    "passes": Command(
        "the program after every compiler pass, as text or as a page with differences",
        f"{_HERE}.object_commands:show_passes",
        add.passes,
        (
            "livegrad passes scene.py:shade",
            "livegrad passes scene.py:shade -o shade.html",
            "livegrad passes scene.py:energy --types 'f32; vec<f32, 3>' --only simplify",
            "livegrad passes scene.py:shade --target cuda --only fuse",
        ),
    ),
    "explain": Command(
        "what happens when something runs: a frame of an engine, the plan of a function",
        f"{_HERE}.object_commands:explain",
        add.explain,
        ("livegrad explain scene.py:engine", "livegrad explain scene.py:shade", "livegrad explain part.3mf"),
    ),
    "replay": Command(
        "runs a recording of a live engine again, and compares every output bit by bit",
        f"{_HERE}.replay_command:replay_file",
        add.replay,
        ("livegrad replay session.jsonl --trust",),
    ),
    "bench": Command(
        "the benchmarks, in a copy of the repository",
        f"{_HERE}.run_command:bench",
        add.bench,
        ("livegrad bench context --quick", "livegrad bench --peers"),
    ),
    "doctor": Command(
        "what this machine offers: processor, threads, BLAS, GPU, caches, versions",
        f"{_HERE}.doctor:doctor",
        add.doctor,
        ("livegrad doctor", "livegrad doctor --json"),
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code.

    >>> main(["info", "missing.3mf"])
    1
    """
    command_line = sys.argv[1:] if arguments is None else list(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot print arrows shows question marks
    if not command_line:
        _parser().print_help(sys.stderr)
        return 2
    chosen = _parser().parse_args(with_negative_numbers(command_line))
    module, _, name = chosen.run.partition(":")
    try:
        report: Report = getattr(import_module(module), name)(chosen)
        _show(report, chosen)
    except LivegradError as error:
        return _fail(_message(error, chosen), 2 if isinstance(error, CommandError) else 1)
    except BrokenPipeError:
        # The reader closed the pipe. Redirect stdout, or Python reports the error again when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(f"{error.filename or 'the output'}: {error.strerror or error}")
    except (MemoryError, RecursionError) as error:
        return _fail(f"the work is too large for this machine ({type(error).__name__}); try a larger --feature-size")
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 1 if report.failed else 0


def _show(report: Report, chosen: argparse.Namespace) -> None:
    if getattr(chosen, "json", False):
        print(json.dumps(_finite(report.facts), indent=2, allow_nan=False))
    elif report.lines:
        print("\n".join(report.lines))
    sys.stdout.flush()


def _finite(value: Any) -> Any:
    """Replaces infinities and NaN, which JSON does not have, by null, as in JavaScript."""
    match value:
        case dict():
            return {key: _finite(held) for key, held in value.items()}
        case list() | tuple():
            return [_finite(held) for held in value]
        case float() if not math.isfinite(value):
            return None
    return value


def _message(error: LivegradError, chosen: argparse.Namespace) -> str:
    """The error message. Its source location is omitted if the user has no Python program, because it would be in our
    code."""
    if not isinstance(error.where, Origin) or is_object(str(getattr(chosen, "what", getattr(chosen, "file", "")))):
        return str(error)
    return str(type(error)(error.what, expected=error.expected, found=error.found, help=error.help))


def _fail(message: str, code: int = 1) -> int:
    print(f"livegrad: {message}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="livegrad", description=_DESCRIPTION, epilog=_ENDING, formatter_class=plain)
    parser.add_argument("--version", action="version", version=f"livegrad {import_module('livegrad').__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        described = command.help[0].upper() + command.help[1:] + "."
        examples = "examples:\n" + "\n".join(f"  {example}" for example in command.examples)
        subparser = commands.add_parser(
            name, help=command.help, description=described, epilog=examples, formatter_class=plain
        )
        subparser.set_defaults(run=command.run)
        command.arguments(subparser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
