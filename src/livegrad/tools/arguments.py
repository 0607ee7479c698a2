"""Declares the `argparse` arguments of each command, one function per command. Called by `cli.py`."""

from __future__ import annotations

import argparse
from pathlib import Path

from livegrad.ir.types import f32
from livegrad.tools import argument_values as value


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="a 3MF file, a .vm tape, or a part in a program: file.py:name"
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


# --- parts ------------------------------------------------------------------------------------------------------------


def info(parser: argparse.ArgumentParser) -> None:
    _add_file(parser)
    parser.add_argument("--check", action="store_true", help="exit with 1 if the file has problems")
    _add_json(parser)


def render(parser: argparse.ArgumentParser) -> None:
    _add_file(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="PNG", help="default: FILE's name with .png")
    parser.add_argument(
        "--size", type=value.size, default=(512, 512), metavar="WxH", help="size in pixels (default: 512x512)"
    )
    parser.add_argument(
        "--direction",
        type=value.direction,
        default=(-0.6, 0.75, -0.5),
        metavar="X,Y,Z",
        help="view direction (default: -0.6,0.75,-0.5)",
    )
    parser.add_argument(
        "--color", type=value.color, metavar="R,G,B", help="colour of parts without colours, from 0 to 1"
    )
    _add_choice(parser)
    _add_json(parser)


def slice_(parser: argparse.ArgumentParser) -> None:
    _add_file(parser)
    parser.add_argument(
        "-z", "--height", type=value.number, metavar="Z", help="height (default: the middle of the part)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="SVG", help="default: FILE's name with .svg")
    _add_feature_size(parser)
    _add_choice(parser)
    _add_json(parser)


def mesh(parser: argparse.ArgumentParser) -> None:
    _add_file(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="STL|3MF", help="default: FILE's name with .stl")
    parser.add_argument("--no-sharp", dest="sharp", action="store_false", help="do not reconstruct sharp edges")
    parser.add_argument(
        "--tolerance",
        type=value.number,
        metavar="LENGTH",
        help="flatness tolerance for large triangles; 0 disables merging",
    )
    _add_feature_size(parser)
    _add_choice(parser)
    _add_json(parser)


def evaluate(parser: argparse.ArgumentParser) -> None:
    _add_file(parser)
    parser.add_argument("points", type=value.numbers(3), nargs="*", metavar="X,Y,Z", help="points in build coordinates")
    parser.add_argument(
        "--points-file", type=Path, metavar="FILE", help="read points from a file, one per line; - reads standard input"
    )
    parser.add_argument("--gradient", action="store_true", help="print the exact gradient after each value")
    _add_choice(parser)
    _add_json(parser)


def _add_feature_size(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--feature-size",
        type=value.positive,
        metavar="SIZE",
        help="smallest feature to keep (default: that of the file, or a fiftieth of the part)",
    )


def _add_choice(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("selection and evaluation")
    group.add_argument("--part", metavar="NAME", help="select one of several parts by name, or by number from 1")
    group.add_argument("--function", metavar="NAME", help="use this function of the file instead; requires --bounds")
    group.add_argument(
        "--bounds", type=value.bounds, metavar="X0,Y0,Z0,X1,Y1,Z1", help="bounds, for --function and .vm files"
    )
    group.add_argument(
        "--set",
        type=value.change,
        action="append",
        default=[],
        metavar="FUNCTION.NODE=VALUE",
        help="set a constant, with commas for a vector or matrix; can be repeated",
    )
    group.add_argument(
        "--exact", action="store_true", help="use analytic derivatives for gradient nodes instead of differences"
    )
    group.add_argument(
        "--precision", type=value.precision, default=f32, metavar="BITS", help="32 or 64 bits per number (default: 32)"
    )
    display = group.add_mutually_exclusive_group()
    display.add_argument(
        "--progress", action="store_true", default=None, help="show progress (default: if the output is a terminal)"
    )
    display.add_argument("--quiet", dest="progress", action="store_false", help="show no progress")


# --- graphs and functions ---------------------------------------------------------------------------------------------


def _add_target(parser: argparse.ArgumentParser, files: str) -> None:
    parser.add_argument(
        "what",
        metavar="WHAT",
        help=f"{files}, or an object: module:name or file.py:name; name() calls a function and uses its result",
    )
    parser.add_argument(
        "--types", metavar="TYPES", help="the types of a function's parameters, if it has none: 'f32; vec<f32, 3>'"
    )


def graph(parser: argparse.ArgumentParser) -> None:
    _add_target(parser, "a 3MF file")
    parser.add_argument("--format", choices=("text", "dot", "svg"), help="default: the suffix of --output, or text")
    parser.add_argument("--function", metavar="NAME", help="only this function of a file, by name or resource id")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: standard output")


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--size",
        type=value.dimension,
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="the value of a symbolic size; can be repeated",
    )


def passes(parser: argparse.ArgumentParser) -> None:
    _add_target(parser, "a 3MF file or .vm tape")
    parser.add_argument("--part", metavar="NAME", help="select one of several parts by name, or by number from 1")
    parser.add_argument("--only", metavar="PASS", help="show only the text after this pass")
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cpu", help="default: cpu; no GPU is needed")
    _add_sizes(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: standard output; an HTML page if it ends in .html"
    )
    _add_json(parser)


def explain(parser: argparse.ArgumentParser) -> None:
    _add_target(parser, "a 3MF file or .vm tape")
    parser.add_argument("--part", metavar="NAME", help="select one of several parts by name, or by number from 1")
    _add_sizes(parser)
    _add_json(parser)


def replay(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a recording, made with lg.live.record")
    parser.add_argument(
        "--trust", action="store_true", help="run the Python code in the file; use it only for files that you trust"
    )
    parser.add_argument("--backend", choices=("cpu", "cuda"), help="default: the backend of the recording")
    _add_json(parser)


# --- tour, benchmarks, diagnostics ------------------------------------------------------------------------------------


def tour(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backend", choices=("cpu", "cuda"), default="cpu", help="backend of the live graph (default: cpu)"
    )
    parser.add_argument("--out", type=Path, default=Path("out"), metavar="FOLDER", help="output folder (default: out)")
    display = parser.add_mutually_exclusive_group()
    display.add_argument("--progress", action="store_true", default=None, help="show progress even without a terminal")
    display.add_argument("--quiet", dest="progress", action="store_false", help="show no progress")
    _add_json(parser)


def studio(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        nargs="?",
        metavar="FILE",
        help="a document that engine.save wrote, a 3MF file, a .vm tape, or file.py:name (default: examples)",
    )
    parser.add_argument("--port", type=int, default=0, help="the port to listen on (default: a free one)")
    parser.add_argument(
        "--host", default="127.0.0.1", help="the address to listen on; pages of other machines cannot edit code"
    )
    parser.add_argument(
        "--permission",
        choices=("view", "tune", "edit", "code"),
        default="code",
        help="what pages may do: look, set numbers, change the graph, or write Python (default: code)",
    )
    parser.add_argument("--trust", action="store_true", help="run the code of a saved document")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")


def bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of ./bench")


def doctor(parser: argparse.ArgumentParser) -> None:
    _add_json(parser)
