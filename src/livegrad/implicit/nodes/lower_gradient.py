"""`lower_function_gradient`: replaces gradient nodes with calls of generated functions and returns a new assembly.

Runs before conversion to the value IR. Each FunctionGradient becomes a call of a generated function that takes central
differences along three axes; each NormalizeDistance becomes a call, a FunctionGradient and a division. The pass repeats
until no such node remains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from livegrad.diagnostics import caller_origin, shown
from livegrad.implicit.nodes.assembly import Assembly, require_assembly
from livegrad.implicit.nodes.checks import (
    called_function,
    calls,
    gradient_problems,
    node_problems,
    resource_id,
)
from livegrad.implicit.nodes.constants import literals_to_constants
from livegrad.implicit.nodes.errors import AssemblyError, Problem
from livegrad.implicit.nodes.gradient_function import (
    STEP_SIZE,
    GradientKey,
    central_difference_function,
    exact_gradient_function,
    insert_function,
    zero_function,
)
from livegrad.implicit.nodes.node_graph import AnyFunction, GraphFunction, GraphNode
from livegrad.implicit.nodes.node_types import DEFAULT_STEP, GRADIENT_TYPES, node_type
from livegrad.implicit.nodes.ports import PortType, Reference, Source

# The outputs of a gradient node and the matching outputs of the generated function.
_OUTPUTS = {"normalizedgradient": "vector", "gradient": "gradient", "magnitude": "magnitude"}


@dataclass(frozen=True)
class LoweredAssembly:
    """An assembly without gradient nodes, and diagnostics for nodes that could not be lowered as requested."""

    assembly: Assembly
    diagnostics: tuple[Problem, ...] = ()


def lower_function_gradient(
    assembly: Assembly, *, exact: bool = False, on_problem: str = "zero", adaptive_step: bool = False
) -> LoweredAssembly:
    """Replaces every FunctionGradient and NormalizeDistance node with ordinary nodes.

    A node that cannot be lowered (incomplete, missing function, wrong type, or part of a call cycle) becomes a call of
    a function that returns zeros, and a diagnostic names the node; with `on_problem="raise"`, it is an error. With
    `exact`, the generated functions are analytic derivatives and ignore steps. With `adaptive_step`, the step along
    each axis grows with the coordinate.

    >>> from livegrad.implicit.nodes.expression import add_expression
    >>> shapes = add_expression(Assembly(), "ball", "length(pos)", {"pos": "vector"})
    >>> shapes = shapes.add_function("main", {"pos": PortType.VECTOR}, {"normal": PortType.VECTOR})
    >>> shapes = shapes.add_node("main", "FunctionGradient", "g", functionID=1, step=1e-3, pos="inputs.pos",
    ...                          scalar_output="shape", vector_input="pos")
    >>> shapes = shapes.link("main", "g.normalizedgradient", "outputs.normal")
    >>> [function.name for function in lower_function_gradient(shapes).assembly.functions.values()]
    ['ball', 'main', 'gradient_of_ball_shape_pos']
    """
    require_assembly(assembly)
    if on_problem not in ("zero", "raise"):
        raise AssemblyError(
            "on_problem is not valid",
            where=caller_origin(),
            expected="'zero' or 'raise'",
            found=shown(on_problem),
        )
    lowering = _Lowering(assembly, exact, on_problem, adaptive_step)
    while pending := list(gradient_nodes(lowering.assembly)):
        for function, identifier in pending:
            lowering.lower(function, identifier)
    return LoweredAssembly(literals_to_constants(lowering.assembly), tuple(lowering.diagnostics))


def gradient_nodes(assembly: Assembly) -> Iterator[tuple[int, str]]:
    """The gradient nodes of an assembly as (function, identifier). Managed functions are skipped."""
    for function in assembly.functions.values():
        if isinstance(function, GraphFunction) and not function.managed:
            for node in function.nodes.values():
                if node.type.name in GRADIENT_TYPES:
                    yield function.id, node.identifier


class _Lowering:
    """The state of the pass: the assembly so far and the ids of generated functions."""

    def __init__(self, assembly: Assembly, exact: bool, on_problem: str, adaptive_step: bool) -> None:
        self.assembly = assembly
        self.exact = exact
        self.on_problem = on_problem
        self.adaptive_step = adaptive_step
        self.diagnostics: list[Problem] = []
        self.generated: dict[GradientKey | None, int] = {}

    def lower(self, function_id: int, identifier: str) -> None:
        """Lowers one gradient node, or replaces it with zeros and reports the problem."""
        parent = self.assembly.graph(function_id)
        node = parent.nodes[identifier]
        callee = called_function(self.assembly, parent, node)
        problem = self._find_problem(parent, node, callee)
        if problem is not None or callee is None:
            self._report_problem(parent, node, problem or "no function is chosen")
            self._replace_with_zero(parent, node)
        elif node.type.name == "NormalizeDistance":
            self._split_normalize_distance(parent, node, callee)
        else:
            self._replace_with_call(parent, node, callee)

    # --- diagnostics --------------------------------------------------------------------------------------------------

    def _find_problem(self, parent: GraphFunction, node: GraphNode, callee: AnyFunction | None) -> str | None:
        """The first reason why a node cannot be lowered, or None."""
        if callee is not None and calls(self.assembly, callee.id, parent.id):
            return f"function `{callee.name}` calls `{parent.name}` again"
        for message in gradient_problems(self.assembly, parent, node):
            return message
        for problem in node_problems(self.assembly, parent, node):
            return problem.message
        if callee is not None and callee.inputs.get(STEP_SIZE, PortType.SCALAR) is not PortType.SCALAR:
            return f"input `{STEP_SIZE}` of function `{callee.name}` is not a scalar"
        return None

    def _report_problem(self, parent: GraphFunction, node: GraphNode, message: str) -> None:
        problem = Problem(parent.name, node.identifier, f"this {node.type.name} returns zeros: {message}")
        if self.on_problem == "raise":
            raise AssemblyError(
                f"cannot lower {node.type.name} `{node.identifier}` of function `{parent.name}`: {message}",
                where=caller_origin(),
            )
        self.diagnostics.append(problem)

    # --- replacing nodes ----------------------------------------------------------------------------------------------

    def _replace_with_call(self, parent: GraphFunction, node: GraphNode, callee: AnyFunction) -> None:
        key = GradientKey(callee.id, str(node.scalar_output), str(node.vector_input), self.exact, self.adaptive_step)
        if key not in self.generated:
            make = exact_gradient_function if self.exact else central_difference_function
            self.assembly, self.generated[key] = insert_function(self.assembly, key, make(self.assembly, callee, key))
        arguments = {name: node.inputs[name] for name in callee.inputs}
        if STEP_SIZE not in callee.inputs:
            arguments[STEP_SIZE] = node.inputs.get("step", DEFAULT_STEP)
        elif "step" in node.inputs and node.inputs["step"] != node.inputs[STEP_SIZE]:
            message = f"its `step` is ignored, because `{callee.name}` has an input `{STEP_SIZE}`"
            self.diagnostics.append(Problem(parent.name, node.identifier, message))
        self._replace_node(parent, node, self.generated[key], arguments, _OUTPUTS)

    def _replace_with_zero(self, parent: GraphFunction, node: GraphNode) -> None:
        if None not in self.generated:
            self.assembly, self.generated[None] = insert_function(self.assembly, None, zero_function())
        outputs = {"result": "magnitude"} if node.type.name == "NormalizeDistance" else _OUTPUTS
        self._replace_node(parent, node, self.generated[None], {}, outputs)

    def _replace_node(
        self,
        parent: GraphFunction,
        node: GraphNode,
        function: int,
        arguments: dict[str, Source],
        outputs: dict[str, str],
    ) -> None:
        """Replaces a node with a call under the same identifier, and reconnects consumers to the renamed outputs."""
        call = replace(
            node,
            type=node_type("FunctionCall"),
            inputs={"functionID": function, **arguments},
            scalar_output=None,
            vector_input=None,
        )
        renamed = {Reference(node.identifier, old): Reference(node.identifier, new) for old, new in outputs.items()}
        self.assembly = self.assembly.with_function(rewire(parent.with_node(call), renamed))

    def _split_normalize_distance(self, parent: GraphFunction, node: GraphNode, callee: AnyFunction) -> None:
        """Lowers to value / |gradient|, or to the value where the gradient is too short to divide by."""
        prefix = node.identifier
        value, gradient, smallest_node, divisor, quotient = (
            _unused_identifier(parent, f"{prefix}_{part}")
            for part in ("value", "gradient", "smallest", "divisor", "quotient")
        )
        function_id = resource_id(parent, node.inputs["functionID"])
        assert function_id is not None
        arguments: dict[str, Source] = {name: node.inputs[name] for name in callee.inputs}
        magnitude, distance = Reference(gradient, "magnitude"), Reference(value, str(node.scalar_output))
        smallest = Reference(smallest_node, "value")
        nodes = [
            GraphNode(value, node_type("FunctionCall"), {"functionID": function_id, **arguments}),
            replace(node, identifier=gradient, type=node_type("FunctionGradient"), display_name="", tag=""),
            GraphNode(smallest_node, node_type("Constant"), value=1e-8),
            _scalar_node(divisor, "Max", A=magnitude, B=smallest),
            _scalar_node(quotient, "Division", A=distance, B=Reference(divisor, "result")),
            replace(
                _scalar_node(prefix, "Select", A=smallest, B=magnitude, C=Reference(quotient, "result"), D=distance),
                display_name=node.display_name,
                tag=node.tag,
                position=node.position,
            ),
        ]
        self.assembly = self.assembly.with_function(
            replace(parent, nodes={**parent.nodes, **{new_node.identifier: new_node for new_node in nodes}})
        )


def _scalar_node(identifier: str, type: str, **inputs: Source) -> GraphNode:
    return GraphNode(identifier, node_type(type), inputs, PortType.SCALAR)


def _unused_identifier(function: GraphFunction, preferred: str) -> str:
    return preferred if preferred not in function.nodes else function.free_identifier(preferred)


def rewire(function: GraphFunction, renamed: dict[Reference, Reference]) -> GraphFunction:
    """Reconnects the consumers of ports; `renamed` maps old ports to new ports."""

    def redirect(source: Source) -> Source:
        return renamed.get(source, source) if isinstance(source, Reference) else source

    nodes = {
        name: node
        if renamed.keys().isdisjoint(s for s in node.inputs.values() if isinstance(s, Reference))
        else replace(node, inputs={port: redirect(source) for port, source in node.inputs.items()})
        for name, node in function.nodes.items()
    }
    return replace(function, nodes=nodes, results={port: redirect(source) for port, source in function.results.items()})
