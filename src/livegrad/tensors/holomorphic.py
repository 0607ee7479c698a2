"""Checks that derivatives are complex-linear, because only then can a complex number represent them.

`jacfwd` and `jacrev` pass the derivatives along some directions, and along the same directions times i.
"""

from __future__ import annotations

from livegrad.diagnostics import DifferentiationError, caller_origin
from livegrad.ir.node import Node
from livegrad.ir.types import Type, f32, scalar_of, shape_of
from livegrad.ir.walk import nodes_of, reachable_functions, toposort
from livegrad.ops.comparison import bit_not, greater
from livegrad.ops.control import check
from livegrad.ops.conversion import conj
from livegrad.ops.elementwise import abs as magnitude
from livegrad.ops.indexing import lookup
from livegrad.ops.reduction import reduce
from livegrad.tensors.handle import Tensor, wrap

_HELP = "differentiate by real and imaginary parts, or use lg.jvp"


def is_complex(tensor: Tensor) -> bool:
    """Whether a tensor's elements are complex numbers."""
    return _has_complex(tensor.type)


def require_complex(derivative: Tensor, name: str) -> None:
    """Raises for real derivatives with respect to complex numbers, which lose a part."""
    if not is_complex(derivative):
        raise DifferentiationError(
            f"`jacfwd` of `{name}` with respect to complex numbers needs a holomorphic function",
            where=caller_origin(),
            found="real results",
            help="use lg.jacrev for real results, or lg.jvp",
        )


def may_conjugate(direction: Tensor, results: list[Tensor]) -> bool:
    """Whether anything between a direction and the results conjugates it or splits it into real and imaginary parts."""
    dependents = {direction.node}
    for node in toposort([result.node for result in results]):
        dependent_operands = [operand for operand in node.operands if operand in dependents]
        if dependent_operands:
            dependents.add(node)
            inside = [inner for function in reachable_functions(node.functions) for inner in nodes_of(function)]
            if _conjugates(node, dependent_operands) or any(
                _conjugates(inner, list(inner.operands)) for inner in inside
            ):
                return True
    return False


def _conjugates(node: Node, operands: list[Node]) -> bool:
    has_complex_operand = any(_has_complex(operand.type) for operand in operands) and scalar_of(node.type) is not None
    return node.op is conj or (has_complex_operand and not _has_complex(node.type))


def _has_complex(type: Type) -> bool:
    scalar = scalar_of(type)
    return scalar is not None and scalar.kind == "complex"


def check_complex_linear(derivative: Tensor, expected: Tensor, name: str) -> Tensor:
    """Adds a run-time check that the derivative equals the one expected from i times its directions, up to rounding."""
    value, size = derivative.node, magnitude(derivative.node)
    axes = tuple(range(len(shape_of(value.type))))
    if 0 in shape_of(value.type):
        return derivative
    largest = reduce(size, kind="max", axes=axes)
    difference = reduce(magnitude(value - expected.node), kind="max", axes=axes)
    tolerance = 1e-3 if scalar_of(size.type) is f32 else 1e-9
    differs = greater(difference, largest * tolerance)
    return wrap(check(value, lookup(bit_not(differs)), message=f"`{name}` is not holomorphic here: {_HELP}"))
