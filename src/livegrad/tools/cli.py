"""The command line: `livegrad COMMAND`. The table `COMMANDS` lists the commands and their implementations.

Exit codes: 0 success, 1 invalid file or failure, 2 invalid arguments, 130 interrupted. The modules of a command are
imported when it runs.
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
from livegrad.tools.argument_values import escape_negative_numbers, is_object
from livegrad.tools.report import CommandError, Report

_DESCRIPTION = (
    "Live, differentiable compute graphs: a tour, tools for parts in 3MF files and .vm tapes, and compiler inspection."
)
_EPILOG = """examples:
  livegrad run                                   fits, draws and edits a part in one live graph; writes out/index.html
  livegrad info part.3mf
  livegrad render part.3mf -o part.png --size 1024x768
  livegrad slice part.3mf -z 12.5 -o layer.svg
  livegrad mesh part.3mf -o part.stl --feature-size 0.2
  livegrad eval part.3mf 1,2,3 --gradient
  livegrad graph scene.py:shade -o shade.svg     draws the graph of a file, or of an object in a program
  livegrad passes scene.py:shade -o shade.html   shows the program after every compiler pass
  livegrad explain scene.py:engine
  livegrad studio scene.py:engine                shows a live graph in the browser
  livegrad replay session.jsonl --trust          replays a recorded session of a live engine, and compares all bits
  livegrad doctor                                checks the installation

exit codes: 0 success, 1 invalid file or failure, 2 invalid arguments, 130 interrupted"""


@dataclass(frozen=True)
class Command:
    """One command: its help line, its implementation, its arguments, and examples."""

    help: str
    run: str  # module:function, which takes the parsed arguments and returns a Report
    arguments: Callable[[argparse.ArgumentParser], None]
    examples: tuple[str, ...]


_TOOLS = "livegrad.tools"
COMMANDS = {
    "run": Command(
        "run the tour: fit, draw and edit a part in one live graph",
        f"{_TOOLS}.run_command:run",
        add.tour,
        ("livegrad run", "livegrad run --backend cuda --out /tmp/tour"),
    ),
    "info": Command(
        "list the contents of a file: functions, resources, parts, problems",
        f"{_TOOLS}.part_commands:show_info",
        add.info,
        ("livegrad info part.3mf", "livegrad info part.3mf --check --json"),
    ),
    "render": Command(
        "render a part to a PNG file",
        f"{_TOOLS}.part_commands:render_part",
        add.render,
        (
            "livegrad render part.3mf -o part.png --size 1024x768",
            "livegrad render part.3mf --direction -1,1,-1",
            "livegrad render bracket.py:part                a part, shape or assembly in a program",
        ),
    ),
    "slice": Command(
        "write the contours of a part at a height to an SVG file",
        f"{_TOOLS}.part_commands:slice_part_at_height",
        add.slice_,
        ("livegrad slice part.3mf -z 12.5 -o layer.svg",),
    ),
    "mesh": Command(
        "write the surface of a part as a closed mesh to an STL or 3MF file",
        f"{_TOOLS}.part_commands:mesh_part",
        add.mesh,
        ("livegrad mesh part.3mf -o part.stl --feature-size 0.2",),
    ),
    "eval": Command(
        "evaluate a part at points; values are negative inside",
        f"{_TOOLS}.part_commands:evaluate_points",
        add.evaluate,
        ("livegrad eval part.3mf 1,2,3 --gradient", "livegrad eval part.3mf --points-file points.csv --json"),
    ),
    "graph": Command(
        "show the graph of a 3MF file or an object as text, DOT or SVG",
        f"{_TOOLS}.object_commands:show_graph",
        add.graph,
        (
            "livegrad graph part.3mf --function main",
            "livegrad graph scene.py:shade -o shade.svg",
            "livegrad graph package.module:make_engine() --format dot | dot -Tpng > engine.png",
        ),
    ),
    "passes": Command(
        "show the program after every compiler pass, as text or as an HTML page with differences",
        f"{_TOOLS}.object_commands:show_passes",
        add.passes,
        (
            "livegrad passes scene.py:shade",
            "livegrad passes scene.py:shade -o shade.html",
            "livegrad passes scene.py:energy --types 'f32; vec<f32, 3>' --only simplify",
            "livegrad passes scene.py:shade --target cuda --only fuse",
        ),
    ),
    "explain": Command(
        "explain how an object runs: the frame of an engine, the plan of a function",
        f"{_TOOLS}.object_commands:explain",
        add.explain,
        ("livegrad explain scene.py:engine", "livegrad explain scene.py:shade", "livegrad explain part.3mf"),
    ),
    "replay": Command(
        "replay a recorded session of a live engine, and compare every output bit by bit",
        f"{_TOOLS}.replay_command:replay_file",
        add.replay,
        ("livegrad replay session.jsonl --trust",),
    ),
    "studio": Command(
        "show a live graph in the browser, turn its numbers and edit it",
        f"{_TOOLS}.studio.studio_command:open_page",
        add.studio,
        (
            "livegrad studio                                offers examples",
            "livegrad studio scene.py:engine",
            "livegrad studio scene.lg                       a document that engine.save wrote",
            "livegrad studio part.3mf --permission tune",
        ),
    ),
    "bench": Command(
        "run the benchmarks, in a checkout of the repository",
        f"{_TOOLS}.run_command:bench",
        add.bench,
        ("livegrad bench context --quick", "livegrad bench --peers"),
    ),
    "doctor": Command(
        "check the installation: processor, threads, BLAS, GPU, caches, versions",
        f"{_TOOLS}.doctor:doctor",
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
        sys.stdout.reconfigure(errors="replace")  # terminals that cannot print arrows show question marks
    if not command_line:
        _parser().print_help(sys.stderr)
        return 2
    options = _parser().parse_args(escape_negative_numbers(command_line))
    module, _, name = options.run.partition(":")
    try:
        report: Report = getattr(import_module(module), name)(options)
        _print_report(report, options)
    except LivegradError as error:
        return _fail(_message(error, options), 2 if isinstance(error, CommandError) else 1)
    except BrokenPipeError:
        # The reader closed the pipe. Redirect stdout, because otherwise Python reports the error again at exit.
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


def _print_report(report: Report, options: argparse.Namespace) -> None:
    if getattr(options, "json", False):
        print(json.dumps(_replace_non_finite(report.facts), indent=2, allow_nan=False))
    elif report.lines:
        print("\n".join(report.lines))
    sys.stdout.flush()


def _replace_non_finite(value: Any) -> Any:
    """Replaces infinities and NaN, which JSON does not have, by null, like JavaScript."""
    match value:
        case dict():
            return {key: _replace_non_finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_replace_non_finite(item) for item in value]
        case float() if not math.isfinite(value):
            return None
    return value


def _message(error: LivegradError, options: argparse.Namespace) -> str:
    """The error message.

    Its source location is omitted if the user named no Python program, because it would be in livegrad's own code.
    """
    if not isinstance(error.where, Origin) or is_object(str(getattr(options, "what", getattr(options, "file", "")))):
        return str(error)
    return str(type(error)(error.what, expected=error.expected, found=error.found, help=error.help))


def _fail(message: str, code: int = 1) -> int:
    print(f"livegrad: {message}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="livegrad", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=formatter
    )
    parser.add_argument("--version", action="version", version=f"livegrad {import_module('livegrad').__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        description = command.help[0].upper() + command.help[1:] + "."
        examples = "examples:\n" + "\n".join(f"  {example}" for example in command.examples)
        subparser = commands.add_parser(
            name, help=command.help, description=description, epilog=examples, formatter_class=formatter
        )
        subparser.set_defaults(run=command.run)
        command.arguments(subparser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
