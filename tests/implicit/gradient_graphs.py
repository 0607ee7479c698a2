"""Small assemblies with gradient nodes, for tests of the lowering."""

from typing import Any

from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.expression import add_expression
from livegrad.implicit.nodes.ports import PortType

SCALAR, VECTOR = PortType.SCALAR, PortType.VECTOR
OUTPUTS = {"normal": VECTOR, "gradient": VECTOR, "magnitude": SCALAR}
PORTS = {"normal": "normalizedgradient", "gradient": "gradient", "magnitude": "magnitude"}
FIELD = "length(pos * vector(1, 0.5, 2)) * size + sin(pos.x * 2) - 1"


def field(**inputs: str) -> Assembly:
    """A function `field` (id 1) of a position and a size."""
    return add_expression(Assembly(), "field", FIELD, {"pos": "vector", "size": "scalar", **inputs})


def with_gradient(step: Any = 1e-4, function: Any = 1, **changes: Any) -> Assembly:
    """`main` (id 2) with a FunctionGradient `g` of the field, whose three outputs are used."""
    assembly = field().add_function("main", {"pos": VECTOR, "h": SCALAR}, OUTPUTS)
    settings = {"scalar_output": "shape", "vector_input": "pos", "pos": "inputs.pos", "size": 1.5, "step": step}
    settings |= changes
    ports = {name: value for name, value in settings.items() if value is not None}
    if function is not None:
        assembly = assembly.add_node("main", "FunctionGradient", "g", functionID=function, **ports)
    else:
        assembly = assembly.add_node("main", "FunctionGradient", "g", step=step)
    for output, port in PORTS.items():
        assembly = assembly.link("main", f"g.{port}", f"outputs.{output}")
    return assembly


def with_normalized_distance() -> Assembly:
    """`main` (id 2) with a NormalizeDistance `n` of the field."""
    assembly = field().add_function("main", {"pos": VECTOR}, {"distance": SCALAR})
    assembly = assembly.add_node(
        "main",
        "NormalizeDistance",
        "n",
        functionID=1,
        step=1e-4,
        pos="inputs.pos",
        size=1.5,
        scalar_output="shape",
        vector_input="pos",
    )
    return assembly.link("main", "n.result", "outputs.distance")
