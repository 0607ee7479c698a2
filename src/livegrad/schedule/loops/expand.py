"""Expands ops for which the target has no code into simpler ones.

Earlier loop passes decide by the ops of the program; later ones, such as `interleave_lanes`, by the ops that have code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from livegrad.ir.node import Function, Module, Node
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.passes.expand import expand_ops
from livegrad.passes.functions import rewrite_functions
from livegrad.schedule.loops.nest import LoopNest
from livegrad.schedule.target import Target


def expand_without_code(nest: LoopNest) -> LoopNest:
    """Expands the ops without code in a kernel's stages and their nested functions."""
    stages = nest.kernel.stages
    bodies = [with_code(stage.body, nest.target) for stage in stages]
    if all(body is stage.body for body, stage in zip(bodies, stages, strict=True)):
        return nest
    return nest.with_stages(tuple([replace(s, body=body) for s, body in zip(stages, bodies, strict=True)]))


def with_code(function: Function, target: Target) -> Function:
    """Expands the ops of a function that have no code for a target; returns the same function if there are none."""
    lacks_code = target.lacks_code
    return function if lacks_code is None else _expand(function, lacks_code) or function


@lru_cache(maxsize=4096)
def _expand(function: Function, lacks_code: Callable[[Node], bool]) -> Function | None:
    """The expanded function; None if all of its ops have code."""
    expanded = None
    # An expansion may contain functions.
    while any(lacks_code(node) for inner in reachable_functions([function]) for node in nodes_of(inner)):
        (function,) = rewrite_functions(Module((function,)), lambda inner: expand_ops(inner, lacks_code)).functions
        expanded = function
    return expanded
