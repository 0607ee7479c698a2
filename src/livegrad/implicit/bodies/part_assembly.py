"""Converts parts to assemblies, for `save_3mf`: a shape becomes node-graph functions and a level set."""

from __future__ import annotations

from dataclasses import replace

from livegrad.diagnostics import caller_origin
from livegrad.implicit.bodies.part import Part
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.builder import FunctionBuilder
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.from_ir import add_ir_function, ports_for
from livegrad.implicit.nodes.ports import PortType, literal_for
from livegrad.implicit.nodes.resources import Document, LevelSet, NamedConstant, TriangleMesh


def assembly_of_part(part: Part, *, min_feature_size: float | None = None) -> Assembly:
    """Converts a part to an assembly: its function becomes nodes, its parameters named constants, its bounds a domain.
    `lg.parts` restores the part with the same parameters, also after `save_3mf` and `load_3mf`.

    >>> from livegrad.implicit.bodies import shapes
    >>> ball = shapes.sphere(shapes.Parameter("radius", 2.0)).part(((-3, -3, -3), (3, 3, 3)), "ball")
    >>> assembly = assembly_of_part(ball)
    >>> [function.name for function in assembly.functions.values()], assembly.node("ball", "radius").value
    (['ball_shape', 'ball'], 2.0)
    """
    if part.ends_itself or len(part.arguments) > len(part.parameter_names):
        raise AssemblyError(
            f"part `{part.name}` has a domain, meshes or images that nodes cannot represent",
            where=caller_origin(),
            help="save the assembly that the part came from",
        )
    names = ["pos", *part.parameter_names]
    assembly = add_ir_function(Assembly(), part.function, names, ["shape"], name=f"{part.name}_shape")
    build = FunctionBuilder(assembly, part.name)
    arguments = {"pos": build.input("pos", PortType.VECTOR)}
    parameters: list[NamedConstant] = []
    types = part.function.parameter_types[1:]
    for (name, value), type in zip(part.parameters.items(), types, strict=False):
        ports = ports_for(name, type)
        values = [value] if name in ports else value
        for (port, port_type), component in zip(ports.items(), values, strict=True):
            arguments[port] = build.named_constant(port, literal_for(component, port_type), port_type)
            parameters.append((port, build.id, port))
    assembly = build.finish(shape=build.call(f"{part.name}_shape", arguments)["shape"])
    domain, body = assembly.free_id(), assembly.free_id() + 1
    assembly = assembly.add_resource(TriangleMesh.box(part.low, part.high), id=domain)
    size = part.min_feature_size if min_feature_size is None else min_feature_size
    level_set = LevelSet(build.id, "shape", domain, box_only=True, min_feature_size=size, name=part.name)
    assembly = replace(assembly, document=Document(parameters=tuple(parameters), controls=tuple(part.controls.items())))
    return assembly.add_resource(level_set, id=body).build(body)
