"""Min/max pruning: functions that compute only some of their leaves, selected by a bit mask for each point or box.

In: the leaves from `split_choices`. Out: the function with mask words as additional parameters, or its bounds, which
return the masks for everything inside a box. Each leaf is under a `cond`, so that backends skip leaves that no lane
needs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from livegrad import ops
from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, constant_op, input_node, input_op, parameter_op
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.propagate_lines import propagating_lines
from livegrad.ir.types import Scalar, Type, scalar_of, u32
from livegrad.ir.walk import nodes_of
from livegrad.ops.control import cond
from livegrad.passes.bound_intervals import Interval, intervals_of
from livegrad.passes.split_choices import Choices, Group, Leaf, Nested, Part, Step, cost_of, uses_of

WORD = u32
BITS = 32  # of a word
_CHEAP = 4.0  # additions: what costs no more is computed where it is used, as often as that is
State = tuple[Node, ...]


def words_of(choices: Choices) -> int:
    """How many words hold a bit for each leaf."""
    return -(-choices.number // BITS)


def mask_choices(choices: Choices, undefined: Collection[int] | None = None) -> Function:
    """(parameters, words) → a number with the function's sign, wherever the leaves whose bits are 0 are decided.

    It is NaN where a leaf that was computed has such a member; the function itself may have a value there. `undefined`
    are the values that may be NaN (`undefined_values`): all of them, unless told.

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import f32
    >>> from livegrad.passes.split_choices import split_choices
    >>> strips = trace(lambda x: ops.min(ops.min(x - 1.0, 2.0 - x), ops.max(x, 2.0 - x * x)), f32)
    >>> mask_choices(split_choices(strips, least_cost=0.0))
    <function <lambda>.masked(f32, u32) -> f32>
    """
    perhaps = range(len(choices.values.results)) if undefined is None else undefined
    return _Points(choices, choices.values, frozenset(perhaps)).build(f"{choices.name}.masked")


def mask_bounds(choices: Choices, ranged: tuple[bool, ...]) -> Function:
    """(bounds of the ranged parameters, others, words) → low, high, and words for everything between the bounds.

    A leaf's bit is 0 where no choice among the values between the bounds can fall on it. Low and high are NaN where
    a value may be: such a box is not decided.

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
    """Which values, by number, may be NaN where the parameters are finite."""
    _, intervals = _intervals(choices.values, ranged)
    return frozenset(number for number, interval in enumerate(intervals) if _may_be_undefined(interval))


@lru_cache(maxsize=4)
def _intervals(values: Function, ranged: tuple[bool, ...]) -> tuple[tuple[Node, ...], tuple[Interval, ...]]:
    with propagating_lines([values]):
        return intervals_of(values, ranged)


def _may_be_undefined(interval: Interval) -> bool:
    """Nothing is known in advance of values that are constant in the box."""
    return interval.unbounded or (interval.is_point and interval.low.op is not constant_op)


# --- where nodes are computed ----------------------------------------------------------------------------------------


@dataclass
class _PartPlacement:
    """The parts of a function's choices as a tree, and for each node of the function the parts that compute it.

    What several parts use is computed once, in the smallest part that holds them all, unless it is cheap. A product
    that is used more than once is never computed twice: used once in each place it could be fused with a sum there,
    and then the bits of the result were others.
    """

    root: Part
    parents: dict[int, Part] = field(default_factory=dict)
    depths: dict[int, int] = field(default_factory=dict)
    regions: dict[int, Part] = field(default_factory=dict)
    homes: dict[Node, frozenset[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        pending = [(self.root, 0)]
        while pending:
            part, depth = pending.pop()
            self.regions[id(part)], self.depths[id(part)] = part, depth
            for inner in _parts_of(part):
                self.parents[id(inner)] = part
                pending.append((inner, depth + 1))

    def assign_parts(self, function: Function, used: dict[Node, set[int]]) -> None:
        """Chooses the parts that compute each node, from the parts that use the results."""
        cheap = _cheap_nodes(function)
        needed = {node: set(parts) for node, parts in used.items()}
        for node in reversed(nodes_of(function)):
            groups = needed.get(node, set())
            if not node.operands:
                continue
            if len(groups) > 1:
                groups = self._outermost(groups) if node in cheap else {self._holding(groups)}
            self.homes[node] = frozenset(groups)
            for operand in node.operands:
                needed.setdefault(operand, set()).update(groups)

    def _outermost(self, groups: set[int]) -> set[int]:
        return {group for group in groups if not any(above in groups for above in self._above(group))}

    def _above(self, group: int) -> Iterable[int]:
        while group in self.parents:
            group = id(self.parents[group])
            yield group

    def _holding(self, groups: set[int]) -> int:
        """The smallest part that holds all of these."""
        first, *others = groups
        for other in others:
            while first != other:
                if self.depths[first] >= self.depths[other]:
                    first = id(self.parents[first])
                else:
                    other = id(self.parents[other])
        return first


def _parts_of(part: Part) -> tuple[Part, ...]:
    if isinstance(part, Nested):
        return part.group.parts
    return part.parts if isinstance(part, Group) else ()


def _cheap_nodes(function: Function) -> set[Node]:
    """Nodes cheap enough to recompute: they are few operations away from values that are computed once."""
    uses = uses_of(function)
    prices: dict[Node, float] = {}
    cheap: set[Node] = set()
    for node in nodes_of(function):
        price = cost_of(node) + sum(prices.get(operand, 0.0) for operand in node.operands)
        is_shared_product = node.op is ops.mul and uses[node] > 1
        if node.operands and price <= _CHEAP and node.op.elementwise and not is_shared_product:
            cheap.add(node)
            prices[node] = price
    return cheap


# --- going through the parts -----------------------------------------------------------------------------------------


class Masked:
    """Builds a function with words out of one without: what it makes of steps is told by what inherits from it."""

    def __init__(self, choices: Choices, values: Function, undefined: frozenset[int]) -> None:
        self.choices, self.values, self.undefined = choices, values, undefined
        self.words = tuple(input_node(Key(f"word{position}"), WORD) for position in range(words_of(choices)))
        self.placement = _PartPlacement(choices.root)
        used: dict[Node, set[int]] = {}
        for leaf in choices.root.leaves():
            for step in leaf.steps:
                for node in self.members(step):
                    used.setdefault(node, set()).add(id(leaf))
        self.placement.assign_parts(values, used)

    # What points and boxes do in their own ways.

    def members(self, step: Step) -> tuple[Node, ...]:
        """The nodes that a step reads."""
        raise NotImplementedError

    def start(self, kind: str) -> State:
        """What changes nothing in a step of this kind."""
        raise NotImplementedError

    def after_leaf(self, leaf: Leaf, state: State) -> State:
        raise NotImplementedError

    def after_group(self, nested: Nested, state: State, inner_state: State) -> State:
        raise NotImplementedError

    def restart(self, kind: str, before: list[Leaf], state: State) -> State:
        """The state before a step of this kind, where none of the leaves before it counts any more."""
        raise NotImplementedError

    # What they have in common.

    def build(self, name: str) -> Function:
        results = self._through(self.choices.root.parts, self.start(self.choices.root.kinds[0]), [], set())
        return make_function(name, [*self.values.parameters, *self.words], results)

    def _through(self, parts: Sequence[Part], state: State, before: list[Leaf], kinds: set[str]) -> State:
        """The state after the parts, from that before them; leaves and kinds of steps before them are known."""
        for part in parts:
            first = part.kinds[0]
            if kinds - {first}:
                state = self.restart(first, before, state)
            state = self._under_cond(part, state, list(before), set(kinds))
            before = [*before, *part.leaves()]
            kinds = kinds | set(part.kinds)
        return state

    def _under_cond(self, part: Part, state: State, before: list[Leaf], kinds: set[str]) -> State:
        """One part, skipped if the mask selects none of its leaves; the state is then unchanged."""
        parameters = tuple(input_node(Key(f"state{id(part)}.{number}"), node.type) for number, node in enumerate(state))
        if isinstance(part, Leaf):
            results = self.after_leaf(part, parameters)
        elif isinstance(part, Nested):
            group = part.group
            inner_state = self._through(group.parts, self.start(group.kinds[0]), [], set())
            results = self.after_group(part, parameters, inner_state)
        else:
            results = self._through(part.parts, parameters, before, kinds)
        captures = self._captures(id(part), results, set(parameters))
        then = make_function(f"{self.choices.name}.part", [*parameters, *captures], results)
        skipped = Function(f"{self.choices.name}.skipped", then.parameters, then.parameters[: len(state)])
        chosen_state = cond(self.asks_for_any(part.leaves()), *state, *captures, then=then, otherwise=skipped)
        return (
            (chosen_state,)
            if len(state) == 1
            else tuple(ops.get(chosen_state, index=index) for index in range(len(state)))
        )

    def _captures(self, group: int, results: State, parameters: set[Node]) -> list[Node]:
        """What a part takes from around it: values of parts that hold it, parameters, and words."""
        captures: dict[Node, None] = {}
        visited: set[Node] = set(parameters)
        pending = [*reversed(results)]
        while pending:
            node = pending.pop()
            if node in visited or node.op is constant_op:
                continue
            visited.add(node)
            homes = self.placement.homes.get(node)
            if node.op in (input_op, parameter_op) or (homes is not None and group not in homes):
                captures[node] = None
            else:
                pending.extend(reversed(node.operands))
        return list(captures)

    def asks_for_any(self, leaves: Iterable[Leaf]) -> Node:
        """Whether the mask selects any of these leaves."""
        tests = [ops.not_equal(word & mask, number(0)) for word, mask in self._words_with_bits(leaves)]
        test = tests[0]
        for other in tests[1:]:
            test = test | other
        return test

    def _words_with_bits(self, leaves: Iterable[Leaf]) -> list[tuple[Node, Node]]:
        """Words with the bits of leaves in them."""
        masks = bits_of(leaves, len(self.words))
        return [(word, number(mask)) for word, mask in zip(self.words, masks, strict=True) if mask]


def bits_of(leaves: Iterable[Leaf], words: int) -> list[int]:
    """The bits of leaves, word by word."""
    masks = [0] * words
    for leaf in leaves:
        masks[leaf.bit // BITS] |= 1 << leaf.bit % BITS
    return masks


def number(value: int) -> Node:
    """A word."""
    return constant(value, WORD)


def neutral(kind: str, type: Type) -> Node:
    """What changes no sign in a step of this kind: any number on the far side of zero does."""
    assert isinstance(type, Scalar)
    return constant(1.0 if kind == "min" else -1.0, type)


def chosen(kind: str, first: Node, second: Node, careful: bool = True) -> Node:
    """The first one where it is NaN; with care also the second one: what is not known is not lost."""
    if careful:
        return ops.minimum(first, second) if kind == "min" else ops.maximum(first, second)
    return ops.min(first, second) if kind == "min" else ops.max(first, second)


class _Points(Masked):
    """The state is one number."""

    def members(self, step: Step) -> tuple[Node, ...]:
        return (self.values.results[step.value],)

    def start(self, kind: str) -> State:
        return (neutral(kind, self.values.result_types[0]),)

    def after_leaf(self, leaf: Leaf, state: State) -> State:
        (value_so_far,) = state
        for step in leaf.steps:
            value = self.values.results[step.value]
            value_so_far = chosen(
                step.kind, value_so_far, -value if step.negated else value, step.value in self.undefined
            )
        return (value_so_far,)

    def after_group(self, nested: Nested, state: State, inner_state: State) -> State:
        return (chosen(nested.kind, state[0], inner_state[0]),)

    def restart(self, kind: str, before: list[Leaf], state: State) -> State:
        (value,) = state
        return (ops.select(self.asks_for_any(before), value, neutral(kind, value.type)),)


class _Boxes(Masked):
    """The state is a low and a high bound, and the words so far: the bits of leaves that a choice can fall on."""

    def members(self, step: Step) -> tuple[Node, ...]:
        return self.values.results[2 * step.value], self.values.results[2 * step.value + 1]

    def start(self, kind: str) -> State:
        start = neutral(kind, self.values.result_types[0])
        return (start, start, *[number(0)] * len(self.words))

    def after_leaf(self, leaf: Leaf, state: State) -> State:
        low, high, *words = state
        decided: Node | None = None
        for step in leaf.steps:
            least, most = self.members(step)
            careful = step.value in self.undefined
            if careful:
                least, most = _finite_bounds(least, most)
            if step.negated:
                least, most = -most, -least
            away = _is_away(step.kind, least, most)
            decided = away if decided is None else decided & away
            low, high = chosen(step.kind, low, least, careful), chosen(step.kind, high, most, careful)
        assert decided is not None
        word_index, bit = divmod(leaf.bit, BITS)
        words[word_index] = words[word_index] | ops.select(decided, number(0), number(1 << bit))
        return (low, high, *words)

    def after_group(self, nested: Nested, state: State, inner_state: State) -> State:
        low, high, *words = state
        least, most, *_ = inner_state
        kept_words = self._kept(_is_away(nested.kind, least, most), list(nested.leaves()), inner_state[2:])
        low, high = chosen(nested.kind, low, least), chosen(nested.kind, high, most)
        return (low, high, *[a | b for a, b in zip(words, kept_words, strict=True)])

    def restart(self, kind: str, before: list[Leaf], state: State) -> State:
        low, high, *words = state
        nothing = neutral(kind, low.type)
        is_asked = self.asks_for_any(before)
        low, high = ops.select(is_asked, low, nothing), ops.select(is_asked, high, nothing)
        return (low, high, *self._kept(_is_away(kind, low, high), before, words))

    def _kept(self, decided: Node, leaves: list[Leaf], words: Sequence[Node]) -> list[Node]:
        """The words of leaves whose value together is decided or not: in the way that changes nothing, or in the other.

        In the other way all that follows is decided, too, unless something there may be NaN. None of the leaves has
        to have a bit then, but one of them must be asked for, or their value would change nothing.
        """
        masks = bits_of(leaves, len(self.words))
        empty = ops.equal(_any(words), number(0))
        kept = []
        for word, original, mask in zip(words, self.words, masks, strict=True):
            updated = ops.select(empty, original & number(mask), word) if mask else word
            kept.append(ops.select(decided, number(0), updated))
        return kept


def _any(words: Sequence[Node]) -> Node:
    combined = words[0]
    for word in words[1:]:
        combined = combined | word
    return combined


def _is_away(kind: str, low: Node, high: Node) -> Node:
    """Whether values between the bounds change nothing in a step of this kind, as far as signs go."""
    return ops.greater(low, 0.0) if kind == "min" else ops.less(high, 0.0)


def _finite_bounds(low: Node, high: Node) -> tuple[Node, Node]:
    """The bounds, or NaN for both where one is not finite: values between them may be NaN."""
    if low is high:
        return low, high
    scalar = scalar_of(low.type)
    assert scalar is not None
    finite = ops.is_finite(low) & ops.is_finite(high)
    unknown = constant(math.nan, scalar)
    return ops.select(finite, low, unknown), ops.select(finite, high, unknown)
