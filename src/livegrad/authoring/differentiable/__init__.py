"""Differentiable functions and types: the protocol, structs, pairs, derivatives of functions, and their checks."""

from livegrad.authoring.differentiable.bound import Bound
from livegrad.authoring.differentiable.dispatch import interface
from livegrad.authoring.differentiable.function import (
    DifferentiableFunction,
    differentiable,
    prefer_checkpoint,
    prefer_recompute,
    remember_at_most,
)
from livegrad.authoring.differentiable.interface import NullDifferential
from livegrad.authoring.differentiable.members import derivative_member
from livegrad.authoring.differentiable.no_diff import no_diff
from livegrad.authoring.differentiable.operators import Derivative, bwd_diff, fwd_diff
from livegrad.authoring.differentiable.optional import OptionalType
from livegrad.authoring.differentiable.pair import Pair, pair
from livegrad.authoring.differentiable.protocol import OPERATIONS, Differentiable
from livegrad.authoring.differentiable.transforms import transform

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
