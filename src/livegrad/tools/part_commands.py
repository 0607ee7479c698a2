"""The commands `info`, `render`, `slice`, `mesh` and `eval`, which inspect parts.

In: parsed arguments. Out: a file and a report. `cli.py` parses arguments and prints the report.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.diagnostics import UsageError
from livegrad.implicit.bodies.clipping import fit_bounds
from livegrad.implicit.bodies.level_sets import parts
from livegrad.implicit.bodies.part import Part
from livegrad.implicit.bodies.rendering import render
from livegrad.implicit.bodies.slicing import slice_part
from livegrad.implicit.formats.mesh_files import save_mesh, save_svg
from livegrad.implicit.formats.png import save_png
from livegrad.implicit.formats.vm import load_vm
from livegrad.implicit.meshing.meshing import mesh
from livegrad.implicit.nodes.dead_code import blocking_problems
from livegrad.implicit.nodes.node_graph import AnyFunction, GraphFunction
from livegrad.ir.walk import nodes_of
from livegrad.tools.part_files import PartChoice, default_name, open_assembly, open_part
from livegrad.tools.progress import ProgressLine
from livegrad.tools.report import CommandError, Report, require_suffix

_MOST_POINTS = 1 << 24


def part_choice(arguments: argparse.Namespace) -> PartChoice:
    """The options that select a part."""
    return PartChoice(
        arguments.part, arguments.function, arguments.bounds, arguments.exact, arguments.precision, arguments.set
    )


def _round_values(values: Any) -> list[float]:
    return [float(f"{value:.7g}") for value in values]


# --- info -------------------------------------------------------------------------------------------------------------


def show_info(arguments: argparse.Namespace) -> Report:
    """Lists the contents of a file."""
    path: Path = arguments.file
    if path.suffix.lower() == ".vm":
        part = load_vm(path)
        count = len(nodes_of(part.function))
        return Report({"file": path.name, "kind": "vm", "nodes": count}, [f"{path.name}: a tape of {count} nodes"])
    assembly = open_assembly(path)
    problems = [str(problem) for problem in assembly.problems()]
    readable = [] if blocking_problems(assembly) else parts(assembly)
    facts = {
        "file": path.name,
        "kind": "3mf",
        "unit": assembly.document.unit,
        "metadata": dict(assembly.document.metadata),
        "functions": [_function_facts(function) for function in assembly.functions.values()],
        "resources": [{"id": resource_id, "kind": type(r).__name__} for resource_id, r in assembly.resources.items()],
        "parts": [_part_facts(part) for part in readable],
        "problems": problems,
    }
    return Report(facts, _info_lines(facts), failed=bool(problems) and arguments.check)


def _function_facts(function: AnyFunction) -> dict[str, Any]:
    return {
        "id": function.id,
        "name": function.name,
        "inputs": {name: type.value for name, type in function.inputs.items()},
        "outputs": {name: type.value for name, type in function.outputs.items()},
        "nodes": len(function.nodes) if isinstance(function, GraphFunction) else 0,
    }


def _part_facts(part: Part) -> dict[str, Any]:
    bounds = fit_bounds(part)
    return {
        "name": part.name,
        "low": _round_values(bounds.low),
        "high": _round_values(bounds.high),
        "min_feature_size": part.min_feature_size,
        "colored": part.color is not None,
    }


def _info_lines(facts: dict[str, Any]) -> list[str]:
    nodes = sum(function["nodes"] for function in facts["functions"])
    lines = [f"{facts['file']}: {len(facts['functions'])} functions of {nodes} nodes, in {facts['unit']}s"]
    for function in facts["functions"]:
        inputs = ", ".join(f"{name}: {type}" for name, type in function["inputs"].items())
        outputs = ", ".join(f"{name}: {type}" for name, type in function["outputs"].items())
        lines.append(f"  function {function['id']} {function['name'] or '(unnamed)'}: ({inputs}) → ({outputs})")
    lines += [f"  resource {resource['id']}: {resource['kind']}" for resource in facts["resources"]]
    for part_index, part in enumerate(facts["parts"], 1):
        colored = ", coloured" if part["colored"] else ""
        lines.append(f"part {part_index} {part['name']}: {part['low']} to {part['high']}{colored}")
    return lines + [f"problem: {problem}" for problem in facts["problems"]]


# --- pictures, contours, meshes ---------------------------------------------------------------------------------------


def render_part(arguments: argparse.Namespace) -> Report:
    """Renders a part to a PNG file."""
    output: Path = arguments.output or Path(default_name(arguments.file) + ".png")
    require_suffix(output, ".png")
    part = open_part(arguments.file, part_choice(arguments))
    with ProgressLine(shown=arguments.progress) as progress:
        options = {} if arguments.color is None else {"color": arguments.color}
        picture = render(part, size=arguments.size, direction=arguments.direction, progress=progress, **options)
    save_png(picture, output)
    width, height = arguments.size
    return Report({"output": str(output), "width": width, "height": height}, [f"{output}: {width} × {height} pixels"])


def slice_part_at_height(arguments: argparse.Namespace) -> Report:
    """Writes the contours of a part at a height to an SVG file."""
    output: Path = arguments.output or Path(default_name(arguments.file) + ".svg")
    require_suffix(output, ".svg")
    part = open_part(arguments.file, part_choice(arguments))
    height = arguments.height
    if height is None:
        bounds = fit_bounds(part)
        height = float(bounds.low[2] + bounds.high[2]) / 2
    with ProgressLine(shown=arguments.progress) as progress:
        cut = slice_part(part, height, feature_size=_feature_size(arguments, part), progress=progress)
    save_svg(cut, output)
    area = cut.area()
    facts = {"output": str(output), "height": height, "contours": len(cut.contours), "area": area}
    return Report(facts, [f"{output}: {len(cut.contours)} contours at z = {height:g}, area {area:.6g}"])


def mesh_part(arguments: argparse.Namespace) -> Report:
    """Writes the surface of a part to an STL or 3MF file."""
    output: Path = arguments.output or Path(default_name(arguments.file) + ".stl")
    require_suffix(output, ".stl", ".3mf")
    if output.exists() and arguments.file.exists() and output.samefile(arguments.file):
        raise UsageError(f"`{output}` is the input file", help="choose another --output")
    part = open_part(arguments.file, part_choice(arguments))
    with ProgressLine(shown=arguments.progress) as progress:
        options = {"tolerance": arguments.tolerance, "sharp": arguments.sharp}
        surface = mesh(part, feature_size=_feature_size(arguments, part), progress=progress, **options)
    if not len(surface.triangles):
        raise UsageError("the part has no surface within its bounds", help="try smaller cells: --feature-size")
    save_mesh(surface, output)
    volume, sampled = surface.volume(), fit_bounds(part).volume()
    facts = {
        "output": str(output),
        "vertices": len(surface.vertices),
        "triangles": len(surface.triangles),
        "closed": surface.is_closed(),
        "volume": volume,
        "sampled_volume": sampled,
    }
    closed = "closed" if facts["closed"] else "NOT CLOSED"
    volumes = f"volume {volume:.6g} ({sampled:.4g} by sampling)"
    return Report(facts, [f"{output}: {len(surface.triangles):,} triangles, {closed}, {volumes}"])


def _feature_size(arguments: argparse.Namespace, part: Part) -> float | None:
    return arguments.feature_size or part.min_feature_size or None


# --- values -----------------------------------------------------------------------------------------------------------


def evaluate_points(arguments: argparse.Namespace) -> Report:
    """Evaluates a part, and with --gradient its gradient, at points from arguments or from a file."""
    points = _points(arguments)
    part = open_part(arguments.file, part_choice(arguments))
    values = part(points)
    facts: dict[str, Any] = {"points": points.tolist(), "values": values.tolist()}
    columns = [values[:, None]]
    if arguments.gradient:
        gradients = part.gradient(points)
        facts["gradients"] = gradients.tolist()
        columns.append(gradients)
    rows = np.concatenate(columns, axis=1)
    return Report(facts, [" ".join(f"{value:.9g}" for value in row) for row in rows.tolist()])


def _points(arguments: argparse.Namespace) -> NDArray[np.float64]:
    if arguments.points and arguments.points_file is not None:
        raise CommandError("points are given twice", help="pass them as arguments or with --points-file, not both")
    if arguments.points:
        return np.array(arguments.points, np.float64)
    if arguments.points_file is None:
        raise CommandError(
            "no points are given", help="pass them as 1,2,3, or use --points-file (- reads standard input)"
        )
    if str(arguments.points_file) == "-":
        return _parse_points(sys.stdin.read().splitlines(), "input")
    try:
        text = arguments.points_file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"`{arguments.points_file}` is not text", expected="three numbers per line") from None
    return _parse_points(text.splitlines(), arguments.points_file.name)


def _parse_points(lines: Sequence[str], name: str) -> NDArray[np.float64]:
    rows = []
    for line_number, line in enumerate(lines, 1):
        columns = line.split("#", 1)[0].replace(",", " ").split()
        if not columns:
            continue
        try:
            x, y, z = map(float, columns)
        except ValueError:
            raise UsageError(
                f"line {line_number} of {name} is not a point", expected="three numbers", found=repr(line[:60])
            ) from None
        rows.append((x, y, z))
        if len(rows) > _MOST_POINTS:
            raise UsageError(f"{name} has too many points", expected=f"at most {_MOST_POINTS}")
    return np.array(rows, np.float64).reshape(-1, 3)
