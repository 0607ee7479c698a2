"""Splits a function into the operands of its min and max, grouped into leaves of similar cost.

In: a function of numbers. Out: its leaves, with one bit each. `mask_choices` builds functions that compute only some of
the leaves; meshers, slicers and renderers run those where the others cannot affect the sign.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from livegrad.ir.node import Function, Node
from livegrad.ir.propagate_lines import propagating_lines
from livegrad.ir.types import Scalar
from livegrad.ir.walk import nodes_of

_OPPOSITE = {"min": "max", "max": "min"}
_CHOICES = {"min": "min", "max": "max", "minimum": "min", "maximum": "max"}
_WIDEST = 8  # parts side by side: so many are skipped at once
_FEWEST = 4  # with fewer leaves there is little to skip
MIN_COST = 1000.0  # additions: up to here, looking at bits costs what it saves


@dataclass(frozen=True)
class Step:
    """The least (`min`) or the greatest (`max`) of what was found so far and of one value, or of less that value.

    The value is a result of `Choices.values`, by number.
    """

    kind: str
    value: int
    negated: bool


@dataclass(frozen=True)
class Leaf:
    """Steps that are taken together, or none of them: a bit says which."""

    steps: tuple[Step, ...]
    bit: int

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of all steps, in order."""
        return tuple(step.kind for step in self.steps)

    def leaves(self) -> Iterator[Leaf]:
        """This one."""
        yield self


@dataclass(frozen=True)
class Nested:
    """One step to the value of a group, which begins with nothing."""

    kind: str
    group: Group

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of the only step."""
        return (self.kind,)

    def leaves(self) -> Iterator[Leaf]:
        """All leaves, in order."""
        return self.group.leaves()


@dataclass(frozen=True)
class Group:
    """Parts in order; each continues with the state of the previous one."""

    parts: tuple[Part, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of all steps, in order."""
        return tuple(kind for part in self.parts for kind in part.kinds)

    def leaves(self) -> Iterator[Leaf]:
        """All leaves, in order."""
        for part in self.parts:
            yield from part.leaves()


Part = Leaf | Nested | Group


@dataclass(frozen=True)
class Choices:
    """What decides the sign of a function: the steps of `root`, over the results of `values`."""

    name: str
    values: Function
    root: Group

    @property
    def number(self) -> int:
        """How many leaves there are, and bits."""
        return sum(1 for _ in self.root.leaves())


def split_choices(function: Function, *, most: int = 64, least_cost: float = MIN_COST) -> Choices | None:
    """Splits the min and max of a function's only result into at most `most` leaves; None if skipping saves little.

    The sign is kept, and nothing else: the least of some numbers has the least of their signs, so that they may be
    compared in any order, and the least of some is less the greatest of their negatives. Where a member is no number
    (NaN), the order counts, and whoever finds one must ask the function itself.

    >>> from livegrad import ops
    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import f32
    >>> strips = trace(lambda x: ops.min(ops.min(x - 1.0, 2.0 - x), ops.max(x, -ops.min(x * x, x - 3.0))), f32)
    >>> [step.kind for leaf in split_choices(strips, least_cost=0.0).root.leaves() for step in leaf.steps]
    ['max', 'max', 'max', 'min', 'min']
    """
    (result,) = function.results
    choice = _opened(result, False)
    if choice is None or not isinstance(result.type, Scalar) or result.type.kind != "float":
        return None
    prices, total = _prices(result)
    if total < least_cost:
        return None
    budget = total / most
    while True:
        splitter = _Splitter(budget, prices, uses_of(function))
        root = splitter.group(choice)
        if splitter.bits <= most:
            break
        budget *= 1.2
    if splitter.bits < _FEWEST:
        return None
    with propagating_lines([function]) as lines:
        values = Function(f"{function.name}.values", function.parameters, tuple(splitter.values))
        return Choices(function.name, lines.keep(values), root)


def cost_of(node: Node) -> float:
    """The cost of a node in additions, including its nested functions."""
    op_cost = node.op.cost if node.operands else 0.0
    return op_cost + sum(map(function_cost, node.functions)) if node.functions else op_cost


@lru_cache(maxsize=4096)
def function_cost(function: Function) -> float:
    """What all nodes of a function cost together."""
    return sum(map(cost_of, nodes_of(function)))


def uses_of(function: Function) -> dict[Node, int]:
    """How often each node is an operand or a result."""
    uses: dict[Node, int] = dict.fromkeys(nodes_of(function), 0)
    for node in uses:
        for operand in node.operands:
            uses[operand] += 1
    for result in function.results:
        uses[result] += 1
    return uses


def _prices(result: Node) -> tuple[dict[Node, float], float]:
    """What each node costs with all that it needs and nothing before it needed; and the cost of all."""
    prices: dict[Node, float] = {}
    paid = 0.0
    pending: list[tuple[Node, float | None]] = [(result, None)]
    while pending:
        node, before = pending.pop()
        if before is not None:
            paid += cost_of(node)
            prices[node] = paid - before
        elif node not in prices:
            prices[node] = 0.0
            pending.append((node, paid))
            pending += [(operand, None) for operand in reversed(node.operands)]
    return prices, paid


@dataclass(frozen=True)
class _Choice:
    """A min or max with all negations taken into account: operands, and whether they are negated."""

    kind: str
    operands: tuple[tuple[Node, bool], ...]


def _opened(node: Node, negated: bool) -> _Choice | None:
    """The choice that a node makes; None where it makes none."""
    while node.op.name == "neg":
        node, negated = node.operands[0], not negated
    kind = _CHOICES.get(node.op.name)
    if kind is None:
        return None
    return _Choice(_OPPOSITE[kind] if negated else kind, tuple((operand, negated) for operand in node.operands))


@dataclass
class _Splitter:
    """Gathers steps into leaves of about one budget, and counts those."""

    budget: float
    prices: dict[Node, float]
    uses: dict[Node, int]
    values: list[Node] = field(default_factory=list)
    bits: int = 0

    def group(self, choice: _Choice) -> Group:
        """The choice as a group: along the way to the costliest member of the costliest member, and back."""
        way: list[tuple[str, list[tuple[Node, bool]]]] = []
        while True:
            members = list(self._members(choice))
            way.append((choice.kind, members))
            opened = [
                (self.prices[node], position) for position, (node, _) in enumerate(members) if self._is_worth(node)
            ]
            if not opened:
                break
            inner = _opened(*members.pop(max(opened)[1]))
            assert inner is not None
            choice = inner
        return self._in_leaves([(kind, *member) for kind, members in reversed(way) for member in members])

    def _in_leaves(self, steps: Sequence[tuple[str, Node, bool]]) -> Group:
        parts: list[Part] = []
        waiting: list[Step] = []
        cost = 0.0

        def close() -> None:
            if waiting:
                parts.append(Leaf(tuple(waiting), self.bits))
                self.bits += 1
                waiting.clear()

        for kind, node, negated in steps:
            price = self.prices[node]
            inner = _opened(node, negated) if self._is_worth(node) else None
            if inner is not None:
                close()
                parts.append(Nested(kind, self.group(inner)))
                continue
            if not waiting or cost + price > 1.25 * self.budget:
                close()
                cost = 0.0
            waiting.append(self._step(kind, node, negated))
            cost += price
        close()
        return _in_few_parts(parts)

    def _members(self, choice: _Choice) -> Iterator[tuple[Node, bool]]:
        """What a choice is among, in order: choices of its own kind that are used nowhere else are opened."""
        pending = [*reversed(choice.operands)]
        while pending:
            node, negated = pending.pop()
            inner = _opened(node, negated)
            if inner is not None and inner.kind == choice.kind and self._is_used_once(node):
                pending.extend(reversed(inner.operands))
            else:
                yield node, negated

    def _is_worth(self, node: Node) -> bool:
        """Whether a member is to be cut into leaves itself."""
        return self.prices[node] > 1.5 * self.budget and _opened(node, False) is not None and self._is_used_once(node)

    def _is_used_once(self, node: Node) -> bool:
        while self.uses[node] == 1:
            if node.op.name != "neg":
                return True
            node = node.operands[0]
        return False

    def _step(self, kind: str, node: Node, negated: bool) -> Step:
        while node.op.name == "neg":
            node, negated = node.operands[0], not negated
        self.values.append(node)
        return Step(kind, len(self.values) - 1, negated)


def _in_few_parts(parts: list[Part]) -> Group:
    """A group with few parts side by side: parts that follow each other are joined."""
    while len(parts) > _WIDEST:
        number = math.ceil(len(parts) / _WIDEST)
        cuts = [len(parts) * index // number for index in range(number + 1)]
        parts = [Group(tuple(parts[start:end])) for start, end in pairwise(cuts)]
    return Group(tuple(parts))
