"""Min/max pruning of gradients: masked functions that return the derivatives of the leaf that determines the value.

In: the leaves from `split_choices`, with derivatives. Out: a function with mask words as additional parameters, like
those of `mask_choices`.
"""

from __future__ import annotations

from livegrad import ops
from livegrad.ir.node import Function, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.walk import substitute
from livegrad.ops.rules import filled, zero
from livegrad.passes.differentiate.forward import with_result_tangents
from livegrad.passes.mask_choices import Masked, State, choose, neutral
from livegrad.passes.split_choices import Choices, Leaf, Nested, Step


@propagates_lines
def with_tangents(values: Function, axes: int) -> Function:
    """Each result of a scalar function, followed by its derivatives with respect to the first `axes` parameters.

    All share one body without calls, so common subexpressions are computed once.

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import f32
    >>> with_tangents(trace(lambda x, y: x * y, f32, f32), 2)
    <function <lambda>.tangents(f32, f32) -> (f32, f32, f32)>
    """
    parameters, count = values.parameters, len(values.results)
    columns = [values.results]
    for axis in range(axes):
        derived = with_result_tangents(values, tuple(index == axis for index in range(len(parameters))), [True] * count)
        direction = filled(1.0, parameters[axis].type)
        replacements = dict(zip(derived.parameters, (*parameters, direction), strict=True))
        columns.append(substitute(derived.results, replacements)[count:])
    rows = tuple(column[index] for index in range(count) for column in columns)
    return Function(f"{values.name}.tangents", parameters, rows)


def mask_gradients(choices: Choices, tangents: Function, undefined: frozenset[int]) -> Function:
    """(parameters, mask words) → a value with the sign of the function, and its derivatives.

    Where the function is zero, these are the derivatives of the function. `tangents` has each value of the choices,
    followed by its derivatives. `undefined` has the indices of values that may be NaN, which propagates to the result.
    """
    return _Gradients(choices, tangents, undefined).build(f"{choices.name}.masked_gradients")


class _Gradients(Masked):
    """The state is a value and its derivatives."""

    def members(self, step: Step) -> tuple[Node, ...]:
        width = len(self.values.results) // len(self.choices.values.results)
        return self.values.results[width * step.value : width * (step.value + 1)]

    def start(self, kind: str) -> State:
        value, *derivatives = self.members(Step(kind, 0, negated=False))
        return (neutral(kind, value.type), *[zero(derivative.type) for derivative in derivatives])

    def after_leaf(self, leaf: Leaf, state: State) -> State:
        for step in leaf.steps:
            members = self.members(step)
            signed = tuple(-member for member in members) if step.negated else members
            state = _merge_extremum(step.kind, state, signed, step.value in self.undefined)
        return state

    def after_group(self, nested: Nested, state: State, inner_state: State) -> State:
        return _merge_extremum(nested.kind, state, inner_state, True)

    def restart(self, kind: str, before: list[Leaf], state: State) -> State:
        is_selected = self.selects_any(before)
        return tuple(ops.select(is_selected, old, new) for old, new in zip(state, self.start(kind), strict=True))


def _merge_extremum(kind: str, first: State, second: State, may_be_nan: bool) -> State:
    """The state with the smaller or larger value; on a tie, the mean of the derivatives, as for `min` and `max`."""
    (a, *derivatives_of_a), (b, *derivatives_of_b) = first, second
    takes_b = ops.less(b, a) if kind == "min" else ops.greater(b, a)
    tie, half = ops.equal(a, b), filled(0.5, a.type)
    pairs = zip(derivatives_of_a, derivatives_of_b, strict=True)
    derivatives = [ops.select(takes_b, v, ops.select(tie, (u + v) * half, u)) for u, v in pairs]
    return (choose(kind, a, b, may_be_nan), *derivatives)
