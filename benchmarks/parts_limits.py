"""Contenders of the implicit suite for first-use costs: nested calls, long bounds, thin walls, and a picture.

Each run compiles something new, so that no cache has it; the command line draws the picture, with its caches."""

import itertools
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import prospero
from benchmarks.problems import Problem, Run
from livegrad import ops
from livegrad.implicit.bodies import shapes
from livegrad.implicit.formats.png import read_png
from livegrad.implicit.meshing.meshing import mesh
from livegrad.implicit.nodes.errors import PartWarning
from livegrad.ir.function import trace
from livegrad.ir.node import Function, Node
from livegrad.ir.types import f32
from livegrad.ops.control import call
from livegrad.ops.maps import map_over
from livegrad.passes.bound_intervals import bound_intervals
from livegrad.runtime.cpu import compile_function

_fresh = itertools.count(1)


def nested(levels: int, shift: float) -> Function:
    """f_k(x) = max(f_{k-1}(x), f_{k-1}(x + shift)), from |x - 1| - 0.1."""
    function = trace(lambda x: ops.abs(x - 1.0) - 0.1, f32)
    for _ in range(levels):

        def field(x: Node, inner: Function = function) -> Node:
            return ops.max(call(x, function=inner), call(x + shift, function=inner))

        function = trace(field, f32)
    return function


def _nested_calls(problem: Problem) -> Run:
    def run() -> Any:
        function = nested(problem.size, next(_fresh) * 1e-9)
        low, high = compile_function(map_over(bound_intervals(function, (True,))))(
            np.zeros(4, np.float32), np.full(4, 0.5, np.float32)
        )
        return np.array([low[0], high[0]], np.float64)

    return run


def _bounds_of_sines(problem: Problem) -> Run:
    factors = np.random.default_rng(0).uniform(0, 1, problem.size)

    def run() -> Any:
        phase = next(_fresh) * 1e-9

        def field(x: Node) -> Node:
            total = ops.sin(x * 0.5 + phase)
            for factor in factors.tolist():
                total = total + ops.sin(x * factor + phase)
            return total

        bounds = compile_function(map_over(bound_intervals(trace(field, f32), (True,))))
        low, _ = bounds(np.zeros(4, np.float32), np.zeros(4, np.float32))
        return np.array([low[0]], np.float64) / problem.size

    return run


def _thin_part(problem: Problem) -> Run:
    """A plate of a 125th of its side, meshed without being told of it."""

    def run() -> Any:
        plate = shapes.box((0.5, 0.5, 0.004)).rotate((1, 2, 0.5), 0.4).part(((-1, -1, -1), (1, 1, 1)))
        with warnings.catch_warnings():
            warnings.simplefilter("error", PartWarning)
            return np.array([round(mesh(plate).volume() / 0.001, 1)])

    return run


def _prospero_rendered(problem: Problem) -> Run:
    folder = Path(tempfile.mkdtemp())

    def run() -> Any:
        output, size = folder / "picture.png", f"{problem.size}x{problem.size}"
        command = [str(Path(sys.executable).with_name("livegrad")), "render", str(prospero.PATH)]
        subprocess.run([*command, "-o", str(output), "--size", size], check=True, capture_output=True)
        picture, _ = read_png(output.read_bytes())
        return np.array([float(len(np.unique(picture.reshape(-1, picture.shape[-1]), axis=0)) > 10)])

    return run


BUILDERS: dict[str, Any] = {
    "nested_calls": _nested_calls,
    "bounds_of_sines": _bounds_of_sines,
    "thin_part": _thin_part,
    "prospero_rendered": _prospero_rendered,
}
