"""Min/max pruning: functions that compute only the leaves of their min/max tree that a bit mask selects.

In: the leaves from `split_choices`. Out: the function with mask words as additional parameters, or its bounds, which
also return the mask for everything inside a box. Each leaf is under a `cond`, so backends skip leaves that no lane
needs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

from livegrad import ops
from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, constant_op, input_node, input_op, parameter_op
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.propagate_lines import propagating_lines
from livegrad.ir.types import Scalar, Type, scalar_of, u32
from livegrad.ops.control import cond
from livegrad.passes.bound_intervals import Interval, intervals_of
from livegrad.passes.part_placement import PartPlacement
from livegrad.passes.split_choices import Choices, Leaf, Nested, Part, Step

WORD = u32
BITS = 32  # of a word
State = tuple[Node, ...]


def words_of(choices: Choices) -> int:
    """The number of mask words: one bit for each leaf."""
    return -(-choices.leaf_count // BITS)


def mask_choices(choices: Choices, undefined: Collection[int] | None = None) -> Function:
    """(parameters, mask words) → a value with the sign of the function, if no leaf with bit 0 can change that sign.

    It is NaN if a member of a selected leaf is NaN, even where the function itself has a value. `undefined` has the
    indices of values that may be NaN (`undefined_values`); by default, all may be.

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import f32
    >>> from livegrad.passes.split_choices import split_choices
    >>> strips = trace(lambda x: ops.min(ops.min(x - 1.0, 2.0 - x), ops.max(x, 2.0 - x * x)), f32)
    >>> mask_choices(split_choices(strips, least_cost=0.0))
    <function <lambda>.masked(f32, u32) -> f32>
    """
    may_be_nan = range(len(choices.values.results)) if undefined is None else undefined
    return _Points(choices, choices.values, frozenset(may_be_nan)).build(f"{choices.name}.masked")


def mask_bounds(choices: Choices, ranged: tuple[bool, ...]) -> Function:
    """(bounds of the ranged parameters, others, mask words) → low, high, and mask words for the box of these bounds.

    The bit of a leaf is 0 if the leaf cannot determine the result anywhere in the box. Low and high are NaN if a value
    may be NaN: such a box stays undecided.

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import f32
    >>> from livegrad.passes.split_choices import split_choices
    >>> strips = trace(lambda x: ops.min(ops.min(x - 1.0, 2.0 - x), ops.max(x, 2.0 - x * x)), f32)
    >>> mask_bounds(split_choices(strips, least_cost=0.0), (True,))
    <function <lambda>.masked_bounds(f32, f32, u32) -> (f32, f32, u32)>
    """
    parameters, intervals = _intervals(choices.values, ranged)
    flat = tuple(bound for interval in intervals for bound in (interval.low, interval.high))
    bounds = Function(f"{choices.name}.bounds", parameters, flat)
    return _Boxes(choices, bounds, undefined_values(choices, ranged)).build(f"{choices.name}.masked_bounds")


def undefined_values(choices: Choices, ranged: tuple[bool, ...]) -> frozenset[int]:
    """The indices of values that may be NaN although all parameters are finite."""
    _, intervals = _intervals(choices.values, ranged)
    return frozenset(index for index, interval in enumerate(intervals) if _may_be_undefined(interval))


@lru_cache(maxsize=4)
def _intervals(values: Function, ranged: tuple[bool, ...]) -> tuple[tuple[Node, ...], tuple[Interval, ...]]:
    with propagating_lines([values]):
        return intervals_of(values, ranged)


def _may_be_undefined(interval: Interval) -> bool:
    """Whether a value may be NaN; values that are the same in the whole box may be, unless they are constants."""
    return interval.unbounded or (interval.is_point and interval.low.op is not constant_op)


# --- masked functions ------------------------------------------------------------------------------------------------


class Masked:
    """Builds a function with mask words. Subclasses define its state, and how steps change it."""

    def __init__(self, choices: Choices, values: Function, undefined: frozenset[int]) -> None:
        self.choices, self.values, self.undefined = choices, values, undefined
        self.words = tuple(input_node(Key(f"word{position}"), WORD) for position in range(words_of(choices)))
        self.placement = PartPlacement(choices.root)
        used: dict[Node, set[int]] = {}
        for leaf in choices.root.leaves():
            for step in leaf.steps:
                for node in self.members(step):
                    used.setdefault(node, set()).add(id(leaf))
        self.placement.assign_parts(values, used)

    # Defined by subclasses:

    def members(self, step: Step) -> tuple[Node, ...]:
        """The nodes that a step reads."""
        raise NotImplementedError

    def start(self, kind: str) -> State:
        """The neutral state of steps of this kind."""
        raise NotImplementedError

    def after_leaf(self, leaf: Leaf, state: State) -> State:
        raise NotImplementedError

    def after_group(self, nested: Nested, state: State, inner_state: State) -> State:
        raise NotImplementedError

    def restart(self, kind: str, before: list[Leaf], state: State) -> State:
        """The state before a step of this kind: neutral if the mask selects none of the leaves before it."""
        raise NotImplementedError

    # Shared:

    def build(self, name: str) -> Function:
        results = self._run_parts(self.choices.root.parts, self.start(self.choices.root.kinds[0]), [], set())
        return make_function(name, [*self.values.parameters, *self.words], results)

    def _run_parts(self, parts: Sequence[Part], state: State, before: list[Leaf], kinds: set[str]) -> State:
        """The state after these parts; `before` and `kinds` are the leaves and the kinds of steps that precede them."""
        for part in parts:
            first = part.kinds[0]
            if kinds - {first}:
                state = self.restart(first, before, state)
            state = self._run_part(part, state, list(before), set(kinds))
            before = [*before, *part.leaves()]
            kinds = kinds | set(part.kinds)
        return state

    def _run_part(self, part: Part, state: State, before: list[Leaf], kinds: set[str]) -> State:
        """The state after one part; if the mask selects none of its leaves, the part is skipped."""
        parameters = tuple(input_node(Key(f"state{id(part)}.{index}"), node.type) for index, node in enumerate(state))
        if isinstance(part, Leaf):
            results = self.after_leaf(part, parameters)
        elif isinstance(part, Nested):
            group = part.group
            inner_state = self._run_parts(group.parts, self.start(group.kinds[0]), [], set())
            results = self.after_group(part, parameters, inner_state)
        else:
            results = self._run_parts(part.parts, parameters, before, kinds)
        captures = self._captures(id(part), results, set(parameters))
        then = make_function(f"{self.choices.name}.part", [*parameters, *captures], results)
        skipped = Function(f"{self.choices.name}.skipped", then.parameters, then.parameters[: len(state)])
        chosen_state = cond(self.selects_any(part.leaves()), *state, *captures, then=then, otherwise=skipped)
        return (
            (chosen_state,)
            if len(state) == 1
            else tuple(ops.get(chosen_state, index=index) for index in range(len(state)))
        )

    def _captures(self, group: int, results: State, parameters: set[Node]) -> list[Node]:
        """The values that a part captures: parameters, mask words and nodes that enclosing parts compute."""
        captures: dict[Node, None] = {}
        visited: set[Node] = set(parameters)
        pending = [*reversed(results)]
        while pending:
            node = pending.pop()
            if node in visited or node.op is constant_op:
                continue
            visited.add(node)
            computing_parts = self.placement.computing_parts.get(node)
            if node.op in (input_op, parameter_op) or (computing_parts is not None and group not in computing_parts):
                captures[node] = None
            else:
                pending.extend(reversed(node.operands))
        return list(captures)

    def selects_any(self, leaves: Iterable[Leaf]) -> Node:
        """Whether the mask selects any of these leaves."""
        tests = [ops.not_equal(word & mask, word_constant(0)) for word, mask in self._words_with_bits(leaves)]
        test = tests[0]
        for next_test in tests[1:]:
            test = test | next_test
        return test

    def _words_with_bits(self, leaves: Iterable[Leaf]) -> list[tuple[Node, Node]]:
        """The mask words that contain bits of these leaves, each with a constant of those bits."""
        masks = bits_of(leaves, len(self.words))
        return [(word, word_constant(mask)) for word, mask in zip(self.words, masks, strict=True) if mask]


def bits_of(leaves: Iterable[Leaf], words: int) -> list[int]:
    """The bits of leaves, as one integer for each mask word."""
    masks = [0] * words
    for leaf in leaves:
        masks[leaf.bit // BITS] |= 1 << leaf.bit % BITS
    return masks


def word_constant(value: int) -> Node:
    return constant(value, WORD)


def neutral(kind: str, type: Type) -> Node:
    """A value that never changes the sign of the result in a step of this kind."""
    assert isinstance(type, Scalar)
    return constant(1.0 if kind == "min" else -1.0, type)


def choose(kind: str, first: Node, second: Node, may_be_nan: bool = True) -> Node:
    """The min or max of two values. NaN in `first` is propagated, and with `may_be_nan` also NaN in `second`."""
    if may_be_nan:
        return ops.minimum(first, second) if kind == "min" else ops.maximum(first, second)
    return ops.min(first, second) if kind == "min" else ops.max(first, second)


class _Points(Masked):
    """Evaluates points. The state is the value so far."""

    def members(self, step: Step) -> tuple[Node, ...]:
        return (self.values.results[step.value],)

    def start(self, kind: str) -> State:
        return (neutral(kind, self.values.result_types[0]),)

    def after_leaf(self, leaf: Leaf, state: State) -> State:
        (value_so_far,) = state
        for step in leaf.steps:
            value = self.values.results[step.value]
            value_so_far = choose(
                step.kind, value_so_far, -value if step.negated else value, step.value in self.undefined
            )
        return (value_so_far,)

    def after_group(self, nested: Nested, state: State, inner_state: State) -> State:
        return (choose(nested.kind, state[0], inner_state[0]),)

    def restart(self, kind: str, before: list[Leaf], state: State) -> State:
        (value,) = state
        return (ops.select(self.selects_any(before), value, neutral(kind, value.type)),)


class _Boxes(Masked):
    """Evaluates boxes. The state is a low and a high bound, and mask words of the leaves that can determine them."""

    def members(self, step: Step) -> tuple[Node, ...]:
        return self.values.results[2 * step.value], self.values.results[2 * step.value + 1]

    def start(self, kind: str) -> State:
        start = neutral(kind, self.values.result_types[0])
        return (start, start, *[word_constant(0)] * len(self.words))

    def after_leaf(self, leaf: Leaf, state: State) -> State:
        low, high, *words = state
        decided: Node | None = None
        for step in leaf.steps:
            low_value, high_value = self.members(step)
            may_be_nan = step.value in self.undefined
            if may_be_nan:
                low_value, high_value = _finite_bounds(low_value, high_value)
            if step.negated:
                low_value, high_value = -high_value, -low_value
            is_neutral = _is_neutral(step.kind, low_value, high_value)
            decided = is_neutral if decided is None else decided & is_neutral
            low, high = choose(step.kind, low, low_value, may_be_nan), choose(step.kind, high, high_value, may_be_nan)
        assert decided is not None
        word_index, bit = divmod(leaf.bit, BITS)
        words[word_index] = words[word_index] | ops.select(decided, word_constant(0), word_constant(1 << bit))
        return (low, high, *words)

    def after_group(self, nested: Nested, state: State, inner_state: State) -> State:
        low, high, *words = state
        low_value, high_value, *_ = inner_state
        kept_words = self._prune_bits(
            _is_neutral(nested.kind, low_value, high_value), list(nested.leaves()), inner_state[2:]
        )
        low, high = choose(nested.kind, low, low_value), choose(nested.kind, high, high_value)
        return (low, high, *[a | b for a, b in zip(words, kept_words, strict=True)])

    def restart(self, kind: str, before: list[Leaf], state: State) -> State:
        low, high, *words = state
        nothing = neutral(kind, low.type)
        is_selected = self.selects_any(before)
        low, high = ops.select(is_selected, low, nothing), ops.select(is_selected, high, nothing)
        return (low, high, *self._prune_bits(_is_neutral(kind, low, high), before, words))

    def _prune_bits(self, decided: Node, leaves: list[Leaf], words: Sequence[Node]) -> list[Node]:
        """The mask words of leaves after it is known whether their combined value is neutral (`decided`).

        If it is neutral, no leaf is needed. If it is not, but no leaf has a bit, the leaves have the deciding sign
        everywhere: then the original bits stay, because a masked function treats leaves without bits as neutral.
        """
        masks = bits_of(leaves, len(self.words))
        empty = ops.equal(_union(words), word_constant(0))
        pruned = []
        for word, original, mask in zip(words, self.words, masks, strict=True):
            updated = ops.select(empty, original & word_constant(mask), word) if mask else word
            pruned.append(ops.select(decided, word_constant(0), updated))
        return pruned


def _union(words: Sequence[Node]) -> Node:
    combined = words[0]
    for word in words[1:]:
        combined = combined | word
    return combined


def _is_neutral(kind: str, low: Node, high: Node) -> Node:
    """Whether values between the bounds cannot change the sign of the result in a step of this kind."""
    return ops.greater(low, 0.0) if kind == "min" else ops.less(high, 0.0)


def _finite_bounds(low: Node, high: Node) -> tuple[Node, Node]:
    """The bounds, or NaN for both if one is not finite, because then values between them may be NaN."""
    if low is high:
        return low, high
    scalar = scalar_of(low.type)
    assert scalar is not None
    finite = ops.is_finite(low) & ops.is_finite(high)
    nan = constant(math.nan, scalar)
    return ops.select(finite, low, nan), ops.select(finite, high, nan)
