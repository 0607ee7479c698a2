"""Files of parts as the command line opens them: a path and options come in, an assembly and one part go out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from livegrad.authoring.assembly.assembly import Assembly
from livegrad.authoring.assembly.graph import GraphFunction
from livegrad.authoring.assembly.level_sets import parts
from livegrad.authoring.assembly.part import Part, part_of_function
from livegrad.authoring.assembly.ports import PortType
from livegrad.authoring.assembly.resources import TriangleMesh
from livegrad.diagnostics import UsageError
from livegrad.formats.threemf import load_3mf
from livegrad.formats.vm import load_vm
from livegrad.ir.types import Scalar, f32

Box = tuple[tuple[float, float, float], tuple[float, float, float]]


@dataclass(frozen=True)
class PartChoice:
    """Which part of a file is meant, and how it is computed."""

    part: str | None = None  # its name, or its number among the parts, from 1
    function: str | None = None
    bounds: Box | None = None
    exact: bool = False
    element: Scalar = f32
    changes: Sequence[tuple[str, str, float | tuple[float, ...]]] = ()  # function, constant node, value


def open_assembly(path: Path) -> Assembly:
    """The assembly in a 3MF file, with whatever problems it has."""
    if path.suffix.lower() == ".vm":
        raise UsageError(
            f"`{path.name}` is a tape, which has no functions of nodes",
            help="this command takes 3MF files; `livegrad info` tells what a tape holds",
        )
    return load_3mf(path, check=False)


def open_part(path: Path, choice: PartChoice) -> Part:
    """The chosen part of a 3MF file, or the shape of a `.vm` tape."""
    if path.suffix.lower() == ".vm":
        if choice.function is not None or choice.part is not None or choice.changes:
            raise UsageError(
                f"`{path.name}` is a tape with one shape", help="leave --part, --function and --set out for .vm files"
            )
        default: Box = ((-1.0, -1.0, -1.0), (1.0, 1.0, 1.0))
        return load_vm(path, choice.bounds or default, element=choice.element)
    assembly = open_assembly(path)
    if problems := assembly.problems():
        raise UsageError(
            f"`{path.name}` has functions that cannot run: {problems[0]}",
            help=f"`livegrad info {path}` lists all problems",
        )
    for function, node, value in choice.changes:
        assembly = assembly.set_value(function_name(assembly, function), node, value)
    if choice.function is not None:
        return _function_part(assembly, choice)
    if choice.bounds is not None:
        raise UsageError("--bounds is for --function and for .vm files", help="a level set has a domain of its own")
    return _chosen(path, assembly, parts(assembly, exact=choice.exact, element=choice.element), choice.part)


def function_name(assembly: Assembly, text: str) -> int | str:
    """What a user calls a function: its resource id, or its name. Functions may be named by digits, too."""
    named = any(function.name == text for function in assembly.functions.values())
    return int(text) if text.isdecimal() and not named else text


def _function_part(assembly: Assembly, choice: PartChoice) -> Part:
    assert choice.function is not None
    if choice.bounds is None:
        raise UsageError(
            "a function has no bounds of its own",
            help="say where to look: --bounds X0,Y0,Z0,X1,Y1,Z1, low corner first",
        )
    return part_of_function(
        assembly,
        function_name(assembly, choice.function),
        choice.bounds,
        exact=choice.exact,
        element=choice.element,
    )


def _chosen(path: Path, assembly: Assembly, found: list[Part], wanted: str | None) -> Part:
    if not found:
        raise UsageError(f"`{path.name}` builds no level set", found=_instead(assembly), help=_advice(assembly))
    listed = ", ".join(f"{number} ({part.name})" for number, part in enumerate(found, 1))
    if wanted is None:
        if len(found) == 1:
            return found[0]
        raise UsageError(f"`{path.name}` has {len(found)} parts", help=f"choose one with --part: {listed}")
    matches = [part for number, part in enumerate(found, 1) if wanted in (part.name, str(number))]
    if len(matches) != 1:
        raise UsageError(f"{len(matches)} parts are called `{wanted}`", expected=f"one of {listed}")
    return matches[0]


def _instead(assembly: Assembly) -> str:
    meshes = sum(isinstance(resource, TriangleMesh) for resource in assembly.resources.values())
    return f"{len(assembly.functions)} functions and {meshes} meshes"


def _advice(assembly: Assembly) -> str:
    fields = [function.name or str(function.id) for function in assembly.functions.values() if _is_field(function)]
    if not fields:
        return "only functions of a position can be looked at"
    return f"look at a function instead: --function NAME --bounds X0,Y0,Z0,X1,Y1,Z1 with one of {', '.join(fields[:8])}"


def _is_field(function: Any) -> bool:
    return (
        isinstance(function, GraphFunction)
        and PortType.VECTOR in function.inputs.values()
        and PortType.SCALAR in function.outputs.values()
    )
