"""Differentiable functions and types: the differential protocol, structs, interfaces, pairs, derivatives, checks.

`differentiable_function.py` has the decorator and `derivative_operators.py` `fwd_diff` and `bwd_diff`;
`resolution.py` selects a derivative and `resolved.py` generates it. `struct.py`, `interface.py`, `pair.py` and
`optional.py` are types, whose `Differential` follows from `protocol.py`. `flow_check.py` rejects functions that would
lose a derivative.
"""

from livegrad.frontend.differentiable import bound_methods, generics, interface_dispatch, optional
from livegrad.frontend.differentiable import pair as pairs
from livegrad.frontend.differentiable.bound_methods import Bound
from livegrad.frontend.differentiable.derivative_operators import Derivative, bwd_diff, fwd_diff
from livegrad.frontend.differentiable.differentiable_function import (
    DifferentiableFunction,
    differentiable,
    prefer_checkpoint,
    prefer_recompute,
    remember_at_most,
)
from livegrad.frontend.differentiable.function_transforms import transform
from livegrad.frontend.differentiable.interface import NullDifferential
from livegrad.frontend.differentiable.interface_dispatch import interface
from livegrad.frontend.differentiable.members import derivative_member
from livegrad.frontend.differentiable.no_diff import no_diff
from livegrad.frontend.differentiable.optional import OptionalType
from livegrad.frontend.differentiable.pair import Pair, pair
from livegrad.frontend.differentiable.protocol import OPERATIONS, Differentiable
from livegrad.frontend.function.type_rules import rules

# The compiler applies them in this order.
rules.install(optional.RULES, pairs.RULES, generics.RULES, interface_dispatch.RULES, bound_methods.RULES)

dzero, dadd, dmul = OPERATIONS["dzero"], OPERATIONS["dadd"], OPERATIONS["dmul"]

__all__ = [
    "Bound",
    "Derivative",
    "Differentiable",
    "DifferentiableFunction",
    "NullDifferential",
    "OptionalType",
    "Pair",
    "bwd_diff",
    "dadd",
    "derivative_member",
    "differentiable",
    "dmul",
    "dzero",
    "fwd_diff",
    "interface",
    "no_diff",
    "pair",
    "prefer_checkpoint",
    "prefer_recompute",
    "remember_at_most",
    "transform",
]
