"""The command line: `livegrad info | render | slice | mesh | eval | graph FILE`.

Exit codes: 0 when it worked, 1 when the file or the work went wrong, 2 when the command was written wrongly, 130 when
it was interrupted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from livegrad.diagnostics import LivegradError, Origin
from livegrad.ir.types import Scalar, f32, f64
from livegrad.tools.part_commands import (
    Report,
    evaluate_points,
    mesh_part,
    render_part,
    show_graph,
    show_info,
    slice_of_part,
)

_DESCRIPTION = """Looks at parts in 3MF files (implicit functions, level sets) and at shapes in .vm tapes.

examples:
  livegrad info part.3mf
  livegrad render part.3mf -o part.png --size 1024x768
  livegrad slice part.3mf -z 12.5 -o layer.svg
  livegrad mesh part.3mf -o part.stl --feature-size 0.2
  livegrad eval part.3mf 1,2,3 --gradient
  livegrad graph part.3mf --format dot | dot -Tsvg > part.svg
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit code.

    >>> main(["info", "missing.3mf"])
    1
    """
    chosen = _parser().parse_args(_with_negative_numbers(sys.argv[1:] if arguments is None else list(arguments)))
    try:
        report: Report = chosen.run(chosen)
        _show(report, chosen)
    except LivegradError as error:
        return _fail(_message(error))
    except BrokenPipeError:
        # Whoever read our output has enough of it. Python would complain once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(f"{error.filename or chosen.file}: {error.strerror or error}")
    except (MemoryError, RecursionError) as error:
        return _fail(f"the work is too large for this machine ({type(error).__name__}); try a larger --feature-size")
    except KeyboardInterrupt:
        print("interrupted; nothing was written", file=sys.stderr)
        return 130
    return 1 if report.failed else 0


def _show(report: Report, chosen: argparse.Namespace) -> None:
    if getattr(chosen, "json", False):
        print(json.dumps(report.facts, indent=2, allow_nan=True))
    else:
        print("\n".join(report.lines))
    sys.stdout.flush()


def _message(error: LivegradError) -> str:
    """The error without its place in a Python program: on a command line that would be a place in our own."""
    if not isinstance(error.where, Origin):
        return str(error)
    return str(type(error)(error.what, expected=error.expected, found=error.found, help=error.help))


def _fail(message: str) -> int:
    print(f"livegrad: {message}", file=sys.stderr)
    return 1


# --- arguments --------------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="livegrad", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_info(commands)
    _add_render(commands)
    _add_slice(commands)
    _add_mesh(commands)
    _add_eval(commands)
    _add_graph(commands)
    return parser


def _command(commands: Any, name: str, run: Callable[[argparse.Namespace], Report], help: str) -> Any:
    parser = commands.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
    parser.add_argument("file", type=Path, metavar="FILE", help="a 3MF file, or a .vm tape")
    parser.set_defaults(run=run)
    return parser


def _add_info(commands: Any) -> None:
    parser = _command(commands, "info", show_info, "what a file holds: functions, resources, parts, problems")
    parser.add_argument("--check", action="store_true", help="exit with 1 when the file has problems")
    _add_json(parser)


def _add_render(commands: Any) -> None:
    parser = _command(commands, "render", render_part, "a picture of a part, as a PNG file")
    parser.add_argument("-o", "--output", type=Path, metavar="PNG", help="default: FILE's name with .png")
    parser.add_argument("--size", type=_size, default=(512, 512), metavar="WxH", help="in pixels (default: 512x512)")
    parser.add_argument(
        "--direction",
        type=_numbers(3),
        default=(-0.6, 0.75, -0.5),
        metavar="X,Y,Z",
        help="which way to look (default: -0.6,0.75,-0.5)",
    )
    parser.add_argument("--color", type=_numbers(3), metavar="R,G,B", help="of parts without colours, from 0 to 1")
    _add_choice(parser)
    _add_json(parser)


def _add_slice(commands: Any) -> None:
    parser = _command(commands, "slice", slice_of_part, "the contours of a part at a height, as an SVG file")
    parser.add_argument("-z", "--height", type=_number, metavar="Z", help="default: the middle of the part")
    parser.add_argument("-o", "--output", type=Path, metavar="SVG", help="default: FILE's name with .svg")
    _add_feature_size(parser)
    _add_choice(parser)
    _add_json(parser)


def _add_mesh(commands: Any) -> None:
    parser = _command(commands, "mesh", mesh_part, "the surface of a part as a closed mesh, as an STL or 3MF file")
    parser.add_argument("-o", "--output", type=Path, metavar="STL|3MF", help="default: FILE's name with .stl")
    parser.add_argument("--no-sharp", dest="sharp", action="store_false", help="leave sharp edges as they are cut")
    _add_feature_size(parser)
    _add_choice(parser)
    _add_json(parser)


def _add_eval(commands: Any) -> None:
    parser = _command(commands, "eval", evaluate_points, "the values of a part at points: negative inside")
    parser.add_argument("points", type=_numbers(3), nargs="*", metavar="X,Y,Z", help="points, in build coordinates")
    parser.add_argument(
        "--points-file", type=Path, metavar="FILE", help="read points from a file, one a line; - is the input"
    )
    parser.add_argument("--gradient", action="store_true", help="give the exact gradient after each value")
    _add_choice(parser)
    _add_json(parser)


def _add_graph(commands: Any) -> None:
    parser = _command(commands, "graph", show_graph, "the functions of a file, node by node, as text or DOT")
    parser.add_argument("--format", choices=("text", "dot"), default="text", help="default: text")
    parser.add_argument("--function", metavar="NAME", help="only this function, by name or resource id")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: the standard output")


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _add_feature_size(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--feature-size",
        type=_positive,
        metavar="SIZE",
        help="what is this large is kept (default: what the file says, or a fiftieth of the part)",
    )


def _add_choice(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("which part, and how it is computed")
    group.add_argument("--part", metavar="NAME", help="its name, or its number from 1, where a file has several")
    group.add_argument("--function", metavar="NAME", help="look at this function of the file instead; needs --bounds")
    group.add_argument(
        "--bounds", type=_bounds, metavar="X0,Y0,Z0,X1,Y1,Z1", help="where to look, for --function and .vm files"
    )
    group.add_argument(
        "--set",
        type=_change,
        action="append",
        default=[],
        metavar="FUNCTION.NODE=VALUE",
        help="another value for a constant, with commas for a vector or matrix; can be repeated",
    )
    group.add_argument("--exact", action="store_true", help="gradient nodes mean analytic derivatives, not differences")
    group.add_argument(
        "--precision", type=_precision, default=f32, metavar="BITS", help="32 or 64 bits a number (default: 32)"
    )
    shown = group.add_mutually_exclusive_group()
    shown.add_argument(
        "--progress", action="store_true", default=None, help="show progress (default: where the output is a terminal)"
    )
    shown.add_argument("--quiet", dest="progress", action="store_false", help="show no progress")


def _with_negative_numbers(words: list[str]) -> list[str]:
    """`-1,2,3` is a value, not an option: a leading space tells argparse so."""
    return [f" {word}" if _is_negative(word) else word for word in words]


def _is_negative(word: str) -> bool:
    return word.startswith("-") and word[1:2] != "" and word[1] in "0123456789."


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"`{text}` is not a finite number")
    return value


def _positive(text: str) -> float:
    value = _number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"`{text}` is not above zero")
    return value


def _numbers(count: int) -> Callable[[str], tuple[float, ...]]:
    def parse(text: str) -> tuple[float, ...]:
        try:
            values = tuple(_number(word) for word in text.split(","))
        except ValueError:
            values = ()
        if len(values) != count:
            raise argparse.ArgumentTypeError(f"`{text.strip()}` is not {count} numbers with commas between them")
        return values

    return parse


def _bounds(text: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    values = _numbers(6)(text)
    low, high = values[:3], values[3:]
    if not all(a < b for a, b in zip(low, high, strict=True)):
        raise argparse.ArgumentTypeError(f"`{text.strip()}` is not a box: the low corner comes first")
    return low, high


def _size(text: str) -> tuple[int, int]:
    words = text.lower().split("x")
    if len(words) != 2 or not all(word.isascii() and word.isdecimal() and 0 < int(word) <= 16384 for word in words):
        raise argparse.ArgumentTypeError(f"`{text}` is not a size such as 640x480, up to 16384 each way")
    return int(words[0]), int(words[1])


def _change(text: str) -> tuple[str, str, float | tuple[float, ...]]:
    place, _, value = text.rpartition("=")
    function, _, node = place.rpartition(".")
    if not function or not node:
        raise argparse.ArgumentTypeError(f"`{text}` is not FUNCTION.NODE=VALUE")
    numbers = _numbers(value.count(",") + 1)(value)
    return function, node, numbers[0] if len(numbers) == 1 else numbers


def _precision(text: str) -> Scalar:
    found = {"32": f32, "64": f64}.get(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"`{text}` is neither 32 nor 64")
    return found


if __name__ == "__main__":
    sys.exit(main())
