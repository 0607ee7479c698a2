"""The table of node types: ports, the tag of each in 3MF files, and what each computes in the value IR.

Assemblies check links against it, `to_ir` computes with it, `implicit.formats.threemf` reads and writes by its tags.
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
Ports = tuple[tuple[str, PortType | None], ...]  # None: the kind of the node


@dataclass(frozen=True, eq=False)
class NodeType:
    """One kind of node.

    `compute(*inputs)` returns the outputs in the value IR, in order. It is None for nodes with a value or a resource,
    which `to_ir` handles by name. A port without a type has the node's `kind`, one of `kinds`. `aliases` are tags of
    older files, `output_aliases` older names of outputs.

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
    """Registers a node type under its name and tags, for assemblies, files, lowering and text."""
    NODE_TYPES[type.name] = type
    for tag in (type.tag, *type.aliases):
        _BY_TAG[tag] = type


def node_type(name: str) -> NodeType:
    """The node type of this name."""
    type = NODE_TYPES.get(name)
    if type is None:
        raise AssemblyError(
            f"no node type `{name}`", where=caller_origin(), expected="one of " + ", ".join(sorted(NODE_TYPES))
        )
    return type


def node_type_of_tag(tag: str) -> NodeType | None:
    """The node type that a 3MF element stands for, by its present or an older tag."""
    return _BY_TAG.get(tag)


def _round_half_away(x: Node) -> Node:
    """C's `round`. Not floor(|x| + 0.5): that sum rounds up just below a half."""
    whole = ops.trunc(x)
    return ops.select(ops.abs(x - whole) >= 0.5, whole + ops.copysign(filled(1.0, x.type), x), whole)


def _matrix_vector(matrix: Node, vector: Node) -> tuple[Node, ...]:
    """(x, y, z, 1) · M. The specification only says "A x B"; Gladius, which writes such files, uses row vectors.

    Transforms of objects in 3MF files act on rows as well.
    """
    element = members_of(vector)[0].type
    lifted = ops.make(*members_of(vector), filled(1.0, element), type=Vector(element, 4))  # type: ignore[arg-type]
    return (ops.make_vector(*members_of(ops.matrix_vector(ops.matrix_transpose(matrix), lifted))[:3]),)


def _compose_matrix(*members: Node) -> tuple[Node, ...]:
    return (ops.make(*members, type=Matrix(members[0].type, 4, 4)),)  # type: ignore[arg-type]


def _matrix_from_columns(*columns: Node) -> tuple[Node, ...]:
    parts = [members_of(column) for column in columns]
    nothing, one = zero(parts[0][0].type), filled(1.0, parts[0][0].type)
    rows = [[part[index] for part in parts] for index in range(3)]
    return _compose_matrix(*[member for row in (*rows, [nothing, nothing, nothing, one]) for member in row])


def _matrix_from_rows(*rows: Node) -> tuple[Node, ...]:
    parts = [members_of(row) for row in rows]
    nothing, one = zero(parts[0][0].type), filled(1.0, parts[0][0].type)
    ends = (nothing, nothing, nothing, one)
    return _compose_matrix(*[member for part, end in zip(parts, ends, strict=True) for member in (*part, end)])


def _single(rule: Callable[..., Node]) -> Callable[..., tuple[Node, ...]]:
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
    define(NodeType(_name, _tag, _A, _RESULT, ARITHMETIC, _single(_rule), _aliases))
for _name, _tag, _rule, _aliases in _BINARY:
    define(NodeType(_name, _tag, _AB, _RESULT, ARITHMETIC, _single(_rule), _aliases))

_OLD_VECTOR, _OLD_MATRIX = (("vector", "result"),), (("matrix", "result"),)
_XYZ: Ports = (("x", SCALAR), ("y", SCALAR), ("z", SCALAR))
_ABCD_VECTORS: Ports = tuple((name, VECTOR) for name in "ABCD")
_CELLS: Ports = tuple((f"m{row}{column}", SCALAR) for row in range(4) for column in range(4))
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
        compute=_single(ops.make_vector),
        output_aliases=_OLD_VECTOR,
    ),
    NodeType("DecomposeVector", "decomposevector", (("A", VECTOR),), _XYZ, compute=lambda a: tuple(members_of(a))),
    NodeType(
        "VectorFromScalar",
        "vectorfromscalar",
        (("A", SCALAR),),
        (("result", VECTOR),),
        compute=lambda a: (ops.splat(a, type=Vector(a.type, 3)),),  # type: ignore[arg-type]
        output_aliases=_OLD_VECTOR,
    ),
    NodeType(
        "ComposeMatrix",
        "composematrix",
        _CELLS,
        _MATRIX_RESULT,
        compute=_compose_matrix,
        output_aliases=_OLD_MATRIX,
    ),
    NodeType(
        "MatrixFromColumns",
        "matrixfromcolumns",
        _ABCD_VECTORS,
        _MATRIX_RESULT,
        compute=_matrix_from_columns,
        aliases=("composematrixfromcolumnvectors",),
        output_aliases=_OLD_MATRIX,
    ),
    NodeType(
        "MatrixFromRows",
        "matrixfromrows",
        _ABCD_VECTORS,
        _MATRIX_RESULT,
        compute=_matrix_from_rows,
        aliases=("composematrixfromrowvectors",),
        output_aliases=_OLD_MATRIX,
    ),
    NodeType(
        "Select",
        "select",
        tuple((name, None) for name in "ABCD"),
        _RESULT,
        ARITHMETIC,
        _single(lambda a, b, c, d: ops.select(a < b, c, d)),
    ),
    NodeType(
        "Clamp",
        "clamp",
        (("A", None), ("min", None), ("max", None)),
        _RESULT,
        ARITHMETIC,
        # The specification's formula: the lower bound wins where the bounds are the wrong way round.
        _single(lambda a, low, high: ops.maximum(low, ops.minimum(a, high))),
    ),
    NodeType("Dot", "dot", (("A", VECTOR), ("B", VECTOR)), (("result", SCALAR),), compute=_single(ops.dot)),
    NodeType("Cross", "cross", (("A", VECTOR), ("B", VECTOR)), (("result", VECTOR),), compute=_single(ops.cross)),
    NodeType("Length", "length", (("A", VECTOR),), (("result", SCALAR),), compute=_single(ops.length)),
    NodeType(
        "MatVecMultiplication",
        "matvecmultiplication",
        (("A", MATRIX), ("B", VECTOR)),
        (("result", VECTOR),),
        compute=_matrix_vector,
        aliases=("matrixvectormultiplication",),
    ),
    NodeType("Transpose", "transpose", (("A", MATRIX),), _MATRIX_RESULT, compute=_single(ops.matrix_transpose)),
    NodeType("Inverse", "inverse", (("A", MATRIX),), _MATRIX_RESULT, compute=_single(ops.inverse)),
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
DEFAULT_STEP = 1e-3  # of a gradient node whose step is not connected
MESH_TYPES = {"Mesh": "mesh", "UnsignedMesh": "mesh", "BeamLattice": "beamlattice"}  # and the port of the resource
