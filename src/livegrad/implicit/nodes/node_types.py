"""The table of node types: their ports, their tags in 3MF files, and their computation in the value IR.

Assemblies validate links against it, `to_ir` lowers nodes by it, `implicit.formats.threemf` stores nodes by its tags.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from livegrad import ops
from livegrad.diagnostics import caller_origin
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.ports import PortType
from livegrad.ir.node import Node
from livegrad.ir.types import Matrix, Vector
from livegrad.ops.aggregate import members_of
from livegrad.ops.rules import filled, zero

SCALAR, VECTOR, MATRIX, RESOURCE = PortType.SCALAR, PortType.VECTOR, PortType.MATRIX, PortType.RESOURCE
ARITHMETIC = (SCALAR, VECTOR, MATRIX)
Ports = tuple[tuple[str, PortType | None], ...]  # None: the `kind` of the node


@dataclass(frozen=True, eq=False)
class NodeType:
    """A type of node.

    `compute(*inputs)` returns the outputs in the value IR, in order. It is None for constants and for nodes that refer
    to a resource or a function; `to_ir` lowers those by name. A port without a type has the node's `kind`, one of
    `kinds`. `aliases` are tags in older files, `output_aliases` are (older, current) names of outputs.

    >>> node_type("Addition").tag
    'addition'
    """

    name: str
    tag: str
    inputs: Ports
    outputs: Ports
    kinds: tuple[PortType, ...] = ()
    compute: Callable[..., tuple[Node, ...]] | None = None
    aliases: tuple[str, ...] = ()
    output_aliases: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"<node type {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return node_type, (self.name,)


NODE_TYPES: dict[str, NodeType] = {}
_BY_TAG: dict[str, NodeType] = {}


def define(type: NodeType) -> None:
    """Registers a node type under its name and its tags."""
    NODE_TYPES[type.name] = type
    for tag in (type.tag, *type.aliases):
        _BY_TAG[tag] = type


def node_type(name: str) -> NodeType:
    """Returns a node type by name."""
    type = NODE_TYPES.get(name)
    if type is None:
        raise AssemblyError(
            f"no node type `{name}`", where=caller_origin(), expected="one of " + ", ".join(sorted(NODE_TYPES))
        )
    return type


def node_type_of_tag(tag: str) -> NodeType | None:
    """Returns the node type for the tag of a 3MF element, current or older; None if there is none."""
    return _BY_TAG.get(tag)


def _round_half_away(x: Node) -> Node:
    """C's `round`. Not floor(|x| + 0.5), because that sum rounds up just below one half."""
    truncated = ops.trunc(x)
    return ops.select(ops.abs(x - truncated) >= 0.5, truncated + ops.copysign(filled(1.0, x.type), x), truncated)


def _matrix_vector(matrix: Node, vector: Node) -> tuple[Node, ...]:
    """(x, y, z, 1) · M. The specification only says "A x B"; Gladius, which writes such files, uses row vectors.

    Object transforms in 3MF files use row vectors too.
    """
    element = members_of(vector)[0].type
    homogeneous = ops.make(*members_of(vector), filled(1.0, element), type=Vector(element, 4))  # type: ignore[arg-type]
    return (ops.make_vector(*members_of(ops.matrix_vector(ops.matrix_transpose(matrix), homogeneous))[:3]),)


def _compose_matrix(*members: Node) -> tuple[Node, ...]:
    return (ops.make(*members, type=Matrix(members[0].type, 4, 4)),)  # type: ignore[arg-type]


def _matrix_from_columns(*columns: Node) -> tuple[Node, ...]:
    parts = [members_of(column) for column in columns]
    zero_element, one = zero(parts[0][0].type), filled(1.0, parts[0][0].type)
    rows = [[part[index] for part in parts] for index in range(3)]
    return _compose_matrix(
        *[member for row in (*rows, [zero_element, zero_element, zero_element, one]) for member in row]
    )


def _matrix_from_rows(*rows: Node) -> tuple[Node, ...]:
    parts = [members_of(row) for row in rows]
    zero_element, one = zero(parts[0][0].type), filled(1.0, parts[0][0].type)
    last_column = (zero_element, zero_element, zero_element, one)
    return _compose_matrix(*[member for part, last in zip(parts, last_column, strict=True) for member in (*part, last)])


def _single_output(rule: Callable[..., Node]) -> Callable[..., tuple[Node, ...]]:
    return lambda *inputs: (rule(*inputs),)


_A: Ports = (("A", None),)
_AB: Ports = (("A", None), ("B", None))
_RESULT: Ports = (("result", None),)

_UNARY: tuple[tuple[str, str, Callable[..., Node], tuple[str, ...]], ...] = (
    ("Sin", "sin", ops.sin, ()),
    ("Cos", "cos", ops.cos, ()),
    ("Tan", "tan", ops.tan, ()),
    ("ArcSin", "asin", ops.asin, ("arcsin",)),
    ("ArcCos", "acos", ops.acos, ("arccos",)),
    ("ArcTan", "atan", ops.atan, ("arctan",)),
    ("Sinh", "sinh", ops.sinh, ()),
    ("Cosh", "cosh", ops.cosh, ()),
    ("Tanh", "tanh", ops.tanh, ()),
    ("Exp", "exp", ops.exp, ()),
    ("Log", "log", ops.log, ()),
    ("Log2", "log2", ops.log2, ()),
    ("Log10", "log10", ops.log10, ()),
    ("Sqrt", "sqrt", ops.sqrt, ()),
    ("Abs", "abs", ops.abs, ()),
    ("Round", "round", _round_half_away, ()),
    ("Ceil", "ceil", ops.ceil, ()),
    ("Floor", "floor", ops.floor, ()),
    ("Fract", "fract", ops.fract, ()),
    ("Sign", "sign", ops.sign, ()),
)
_BINARY: tuple[tuple[str, str, Callable[..., Node], tuple[str, ...]], ...] = (
    ("Addition", "addition", ops.add, ()),
    ("Subtraction", "subtraction", ops.sub, ()),
    ("Multiplication", "multiplication", ops.mul, ()),
    ("Division", "division", ops.div, ()),
    ("Min", "min", ops.min, ()),
    ("Max", "max", ops.max, ()),
    ("Fmod", "fmod", ops.fmod, ()),
    # The specification's formula, as in shading languages: the remainder has the divisor's sign.
    ("Mod", "mod", lambda a, b: a - b * ops.floor(a / b), ()),
    ("ArcTan2", "atan2", ops.atan2, ("arctan2",)),
    ("Pow", "pow", ops.pow, ()),
)

for _name, _tag, _rule, _aliases in _UNARY:
    define(NodeType(_name, _tag, _A, _RESULT, ARITHMETIC, _single_output(_rule), _aliases))
for _name, _tag, _rule, _aliases in _BINARY:
    define(NodeType(_name, _tag, _AB, _RESULT, ARITHMETIC, _single_output(_rule), _aliases))

_VECTOR_ALIASES, _MATRIX_ALIASES = (("vector", "result"),), (("matrix", "result"),)
_XYZ: Ports = (("x", SCALAR), ("y", SCALAR), ("z", SCALAR))
_ABCD_VECTORS: Ports = tuple((name, VECTOR) for name in "ABCD")
_MATRIX_ELEMENTS: Ports = tuple((f"m{row}{column}", SCALAR) for row in range(4) for column in range(4))
_MATRIX_RESULT: Ports = (("result", MATRIX),)

for _type in (
    NodeType("Constant", "constant", (), (("value", SCALAR),)),
    NodeType("ConstVec", "constvec", (), (("vector", VECTOR),)),
    NodeType("ConstMat", "constmat", (), (("matrix", MATRIX),)),
    NodeType("ResourceId", "constresourceid", (), (("value", RESOURCE),), aliases=("resourceid",)),
    NodeType(
        "ComposeVector",
        "composevector",
        _XYZ,
        (("result", VECTOR),),
        compute=_single_output(ops.make_vector),
        output_aliases=_VECTOR_ALIASES,
    ),
    NodeType("DecomposeVector", "decomposevector", (("A", VECTOR),), _XYZ, compute=lambda a: tuple(members_of(a))),
    NodeType(
        "VectorFromScalar",
        "vectorfromscalar",
        (("A", SCALAR),),
        (("result", VECTOR),),
        compute=lambda a: (ops.splat(a, type=Vector(a.type, 3)),),  # type: ignore[arg-type]
        output_aliases=_VECTOR_ALIASES,
    ),
    NodeType(
        "ComposeMatrix",
        "composematrix",
        _MATRIX_ELEMENTS,
        _MATRIX_RESULT,
        compute=_compose_matrix,
        output_aliases=_MATRIX_ALIASES,
    ),
    NodeType(
        "MatrixFromColumns",
        "matrixfromcolumns",
        _ABCD_VECTORS,
        _MATRIX_RESULT,
        compute=_matrix_from_columns,
        aliases=("composematrixfromcolumnvectors",),
        output_aliases=_MATRIX_ALIASES,
    ),
    NodeType(
        "MatrixFromRows",
        "matrixfromrows",
        _ABCD_VECTORS,
        _MATRIX_RESULT,
        compute=_matrix_from_rows,
        aliases=("composematrixfromrowvectors",),
        output_aliases=_MATRIX_ALIASES,
    ),
    NodeType(
        "Select",
        "select",
        tuple((name, None) for name in "ABCD"),
        _RESULT,
        ARITHMETIC,
        _single_output(lambda a, b, c, d: ops.select(a < b, c, d)),
    ),
    NodeType(
        "Clamp",
        "clamp",
        (("A", None), ("min", None), ("max", None)),
        _RESULT,
        ARITHMETIC,
        # The specification's formula: if min > max, the result is min.
        _single_output(lambda a, low, high: ops.maximum(low, ops.minimum(a, high))),
    ),
    NodeType("Dot", "dot", (("A", VECTOR), ("B", VECTOR)), (("result", SCALAR),), compute=_single_output(ops.dot)),
    NodeType(
        "Cross", "cross", (("A", VECTOR), ("B", VECTOR)), (("result", VECTOR),), compute=_single_output(ops.cross)
    ),
    NodeType("Length", "length", (("A", VECTOR),), (("result", SCALAR),), compute=_single_output(ops.length)),
    NodeType(
        "MatVecMultiplication",
        "matvecmultiplication",
        (("A", MATRIX), ("B", VECTOR)),
        (("result", VECTOR),),
        compute=_matrix_vector,
        aliases=("matrixvectormultiplication",),
    ),
    NodeType("Transpose", "transpose", (("A", MATRIX),), _MATRIX_RESULT, compute=_single_output(ops.matrix_transpose)),
    NodeType("Inverse", "inverse", (("A", MATRIX),), _MATRIX_RESULT, compute=_single_output(ops.inverse)),
    NodeType("Mesh", "mesh", (("pos", VECTOR), ("mesh", RESOURCE)), (("distance", SCALAR),)),
    NodeType("UnsignedMesh", "unsignedmesh", (("pos", VECTOR), ("mesh", RESOURCE)), (("distance", SCALAR),)),
    NodeType("BeamLattice", "beamlattice", (("pos", VECTOR), ("beamlattice", RESOURCE)), (("distance", SCALAR),)),
    NodeType("FunctionCall", "functioncall", (("functionID", RESOURCE),), ()),
    NodeType(
        "FunctionGradient",
        "functiongradient",
        (("functionID", RESOURCE), ("step", SCALAR)),
        (("normalizedgradient", VECTOR), ("gradient", VECTOR), ("magnitude", SCALAR)),
    ),
    NodeType(
        "NormalizeDistance",
        "normalizedistance",
        (("functionID", RESOURCE), ("step", SCALAR)),
        (("result", SCALAR),),
    ),
):
    define(_type)

VALUE_TYPES = {"Constant": SCALAR, "ConstVec": VECTOR, "ConstMat": MATRIX, "ResourceId": RESOURCE}
CALLING_TYPES = frozenset({"FunctionCall", "FunctionGradient", "NormalizeDistance"})
GRADIENT_TYPES = frozenset({"FunctionGradient", "NormalizeDistance"})
DEFAULT_STEP = 1e-3  # of a gradient node whose `step` is not connected
MESH_TYPES = {"Mesh": "mesh", "UnsignedMesh": "mesh", "BeamLattice": "beamlattice"}  # the values are resource ports
