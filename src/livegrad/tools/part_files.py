"""Opens parts for the command line, from a file or from an object in a program."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from livegrad.diagnostics import UsageError
from livegrad.implicit.bodies.level_sets import parts
from livegrad.implicit.bodies.part import Part, first_scalar_output, part_of_function
from livegrad.implicit.bodies.part_assembly import assembly_of_part
from livegrad.implicit.bodies.shapes import Shape
from livegrad.implicit.formats.threemf import open_3mf
from livegrad.implicit.formats.vm import load_vm
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.dead_code import Outputs, blocking_problems
from livegrad.implicit.nodes.node_graph import GraphFunction
from livegrad.implicit.nodes.ports import PortType
from livegrad.implicit.nodes.resources import TriangleMesh
from livegrad.ir.types import Scalar, f32
from livegrad.tools.argument_values import is_object
from livegrad.tools.objects import open_object
from livegrad.tools.report import CommandError

Box = tuple[tuple[float, float, float], tuple[float, float, float]]


@dataclass(frozen=True)
class PartChoice:
    """Options that select a part of a file, and how to evaluate it."""

    part: str | None = None  # by name, or by number from 1
    function: str | None = None
    bounds: Box | None = None
    exact: bool = False
    element: Scalar = f32
    changes: Sequence[tuple[str, str, float | tuple[float, ...]]] = ()  # function, constant node, value


def open_assembly(path: Path) -> Assembly:
    """The assembly of a 3MF file, even if it has problems, or of an object in a program."""
    if is_object(str(path)):
        value = open_object(str(path))
        return value if isinstance(value, Assembly) else assembly_of_part(part_of_object(str(path), value))
    _require_file(path)
    if path.suffix.lower() == ".vm":
        raise UsageError(
            f"`{path.name}` is a tape, which has no functions of nodes",
            help="this command takes 3MF files; `livegrad info` shows the contents of a tape",
        )
    assembly, notes = open_3mf(path)
    for note in notes:
        print(f"livegrad: {note}", file=sys.stderr)
    return assembly


def open_part(path: Path, choice: PartChoice) -> Part:
    """The selected part of a 3MF file or of an object in a program, or the shape of a `.vm` tape."""
    if is_object(str(path)):
        return part_of_object(str(path), open_object(str(path)), choice)
    _require_file(path)
    if path.suffix.lower() == ".vm":
        if choice.function is not None or choice.part is not None or choice.changes:
            raise CommandError(
                f"`{path.name}` is a tape with one shape", help="omit --part, --function and --set for .vm files"
            )
        default: Box = ((-1.0, -1.0, -1.0), (1.0, 1.0, 1.0))
        return load_vm(path, choice.bounds or default, element=choice.element)
    return _part_of(path.name, open_assembly(path), choice)


def default_name(path: Path) -> str:
    """The base name of output files: a file's name without its suffix, or an object's name.

    >>> default_name(Path("parts/plate.3mf")), default_name(Path("scene.py:make_plate()"))
    ('plate', 'make_plate')
    """
    text = str(path)
    return text.rpartition(":")[2].removesuffix("()") if is_object(text) else path.stem


def _require_file(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"`{path}` is a folder, not a file", help="name a 3MF file or a .vm tape in it")


def _part_of(name: str, assembly: Assembly, choice: PartChoice) -> Part:
    if problems := blocking_problems(assembly, _choose_outputs(assembly, choice.function)):
        raise UsageError(
            f"`{name}` has functions that cannot run: {problems[0]}",
            help="`livegrad info` lists all problems",
        )
    for function, node, value in choice.changes:
        assembly = assembly.set_value(function_name(assembly, function), node, value)
    if choice.function is not None:
        return _function_part(assembly, choice)
    if choice.bounds is not None:
        raise CommandError("--bounds requires --function or a .vm file", help="a level set has its own domain")
    return _choose_part(name, assembly, parts(assembly, exact=choice.exact, element=choice.element), choice.part)


# --- objects in programs ----------------------------------------------------------------------------------------------


def part_of_object(text: str, value: Any, choice: PartChoice | None = None) -> Part:
    """Converts an object to a part. A shape needs --bounds."""
    choice = choice or PartChoice()
    if isinstance(value, Assembly):
        return _part_of(text, value, choice)
    if choice.part or choice.function or choice.changes or choice.exact or choice.element != f32:
        raise CommandError(
            f"`{text}` is one part of a program",
            help="omit --part, --function, --set, --exact and --precision: they apply to 3MF files and assemblies",
        )
    if isinstance(value, Part):
        return value
    if not isinstance(value, Shape):
        raise UsageError(
            f"`{text}` is not a part", expected="a Part, a Shape or an Assembly", found=type(value).__name__
        )
    if choice.bounds is None:
        raise CommandError("a shape has no bounds of its own", help="pass its bounds: --bounds X0,Y0,Z0,X1,Y1,Z1")
    return value.part(choice.bounds, default_name(Path(text)))


# --- selection --------------------------------------------------------------------------------------------------------


def function_name(assembly: Assembly, text: str) -> int | str:
    """Resolves the user's text for a function: a resource id, or a name, which may consist of digits."""
    is_name = any(function.name == text for function in assembly.functions.values())
    return int(text) if text.isdecimal() and not is_name else text


def _choose_outputs(assembly: Assembly, function: str | None) -> Outputs | None:
    """The output of the selected function; None for the outputs that build items use."""
    if function is None:
        return None
    selected = assembly.function(function_name(assembly, function))
    output = first_scalar_output(selected)
    return {selected.id: [] if output is None else [output]}


def _function_part(assembly: Assembly, choice: PartChoice) -> Part:
    assert choice.function is not None
    if choice.bounds is None:
        raise CommandError(
            "a function has no bounds of its own",
            help="pass its bounds, the low corner first: --bounds X0,Y0,Z0,X1,Y1,Z1",
        )
    return part_of_function(
        assembly,
        function_name(assembly, choice.function),
        choice.bounds,
        exact=choice.exact,
        element=choice.element,
    )


def _choose_part(name: str, assembly: Assembly, parts: list[Part], selection: str | None) -> Part:
    if not parts:
        raise UsageError(f"`{name}` has no parts to build", found=_describe_contents(assembly), help=_advice(assembly))
    listed = ", ".join(f"{index} ({part.name})" for index, part in enumerate(parts, 1))
    if selection is None:
        if len(parts) == 1:
            return parts[0]
        raise UsageError(f"`{name}` has {len(parts)} parts", help=f"choose one with --part: {listed}")
    matches = [part for index, part in enumerate(parts, 1) if selection in (part.name, str(index))]
    if len(matches) != 1:
        count = f"{len(matches)} parts are" if matches else "no part is"
        raise UsageError(f"{count} called `{selection}`", expected=f"one of {listed}")
    return matches[0]


def _describe_contents(assembly: Assembly) -> str:
    meshes = sum(isinstance(resource, TriangleMesh) for resource in assembly.resources.values())
    return f"{len(assembly.functions)} functions and {meshes} meshes"


def _advice(assembly: Assembly) -> str:
    fields = [function.name or str(function.id) for function in assembly.functions.values() if _is_field(function)]
    if not fields:
        return "only functions of a position can be used"
    return f"use a function instead: --function NAME --bounds X0,Y0,Z0,X1,Y1,Z1 with one of {', '.join(fields[:8])}"


def _is_field(function: Any) -> bool:
    return (
        isinstance(function, GraphFunction)
        and PortType.VECTOR in function.inputs.values()
        and PortType.SCALAR in function.outputs.values()
    )
