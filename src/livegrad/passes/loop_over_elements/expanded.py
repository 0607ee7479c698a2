"""Functions expanded to loops over elements, and the scratch tensors that they take and return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from livegrad.ir.function import inline
from livegrad.ir.node import Function
from livegrad.ir.types import Tensor, Type
from livegrad.ops.control import parameters_of


class Expanded(NamedTuple):
    """An expanded function; its scratch tensors are additional parameters, and its last results."""

    function: Function
    scratch: tuple[Tensor, ...]


def pass_all_scratch(branch: Expanded, types: Sequence[Type], offset: int) -> Function:
    """The branch with the scratch tensors of all branches as parameters and results; its own start at `offset`."""
    parameter_types, count = branch.function.parameter_types, len(branch.scratch)
    plain = len(parameter_types) - count
    parameters = parameters_of([*parameter_types[:plain], *types])
    results = inline(branch.function, [*parameters[:plain], *parameters[plain + offset : plain + offset + count]])
    plain_results = len(results) - count
    scratch = list(parameters[plain:])
    scratch[offset : offset + count] = results[plain_results:]
    return Function(branch.function.name, parameters, (*results[:plain_results], *scratch))
