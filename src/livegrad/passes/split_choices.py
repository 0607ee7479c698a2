"""Min/max pruning, analysis: splits the min/max tree of a function into leaves of similar cost.

In: a scalar function. Out: its leaves, with one bit each. `mask_choices` builds functions that compute only some of the
leaves; meshers, slicers and renderers run these where the other leaves cannot affect the sign.
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
_KINDS = {"min": "min", "max": "max", "minimum": "min", "maximum": "max"}
_MAX_PARTS = 8  # of a group: one test can skip the whole group
_MIN_LEAVES = 4  # with fewer leaves, there is little to skip
MIN_COST = 1000.0  # additions: for cheaper functions, testing bits costs as much as it saves


@dataclass(frozen=True)
class Step:
    """Updates a running minimum or maximum by one value, which may be negated.

    `value` is the index of a result of `Choices.values`.
    """

    kind: str
    value: int
    negated: bool


@dataclass(frozen=True)
class Leaf:
    """Steps that are computed or skipped together, as one bit of the mask says."""

    steps: tuple[Step, ...]
    bit: int

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of all steps, in order."""
        return tuple(step.kind for step in self.steps)

    def leaves(self) -> Iterator[Leaf]:
        """This leaf."""
        yield self


@dataclass(frozen=True)
class Nested:
    """A step whose value is that of a group, which starts from a neutral state."""

    kind: str
    group: Group

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of the only step."""
        return (self.kind,)

    def leaves(self) -> Iterator[Leaf]:
        """All leaves, in order."""
        return self.group.leaves()


@dataclass(frozen=True)
class Group:
    """A sequence of parts; each continues with the state of the previous one."""

    parts: tuple[Part, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of all steps, in order."""
        return tuple(kind for part in self.parts for kind in part.kinds)

    def leaves(self) -> Iterator[Leaf]:
        """All leaves, in order."""
        for part in self.parts:
            yield from part.leaves()


Part = Leaf | Nested | Group


@dataclass(frozen=True)
class Choices:
    """The min/max tree of a function: the steps of `root`, over the results of `values`. It determines the sign."""

    name: str
    values: Function
    root: Group

    @property
    def leaf_count(self) -> int:
        """The number of leaves, and so of bits."""
        return sum(1 for _ in self.root.leaves())


def split_choices(function: Function, *, most: int = 64, least_cost: float = MIN_COST) -> Choices | None:
    """Splits the min/max tree of a function's only result into at most `most` leaves; None if skipping saves little.

    Only the sign is preserved. The sign of a minimum is the minimum of the signs, so members may be reordered, and a
    negated minimum is a maximum of negated members. With NaN, the order matters: a caller that finds NaN must evaluate
    the function itself.

    >>> from livegrad import ops
    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import f32
    >>> strips = trace(lambda x: ops.min(ops.min(x - 1.0, 2.0 - x), ops.max(x, -ops.min(x * x, x - 3.0))), f32)
    >>> [step.kind for leaf in split_choices(strips, least_cost=0.0).root.leaves() for step in leaf.steps]
    ['max', 'max', 'max', 'min', 'min']
    """
    (result,) = function.results
    choice = _min_or_max(result, False)
    if choice is None or not isinstance(result.type, Scalar) or result.type.kind != "float":
        return None
    costs, total = _find_marginal_costs(result)
    if total < least_cost:
        return None
    budget = total / most
    while True:
        splitter = _Splitter(budget, costs, uses_of(function))
        root = splitter.group(choice)
        if splitter.bits <= most:
            break
        budget *= 1.2
    if splitter.bits < _MIN_LEAVES:
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
    """The total cost of the nodes of a function."""
    return sum(map(cost_of, nodes_of(function)))


def uses_of(function: Function) -> dict[Node, int]:
    """The number of times each node is used, as an operand or as a result."""
    uses: dict[Node, int] = dict.fromkeys(nodes_of(function), 0)
    for node in uses:
        for operand in node.operands:
            uses[operand] += 1
    for result in function.results:
        uses[result] += 1
    return uses


def _find_marginal_costs(result: Node) -> tuple[dict[Node, float], float]:
    """The cost that each node adds in depth-first order, with operands not computed before; and the total cost."""
    costs: dict[Node, float] = {}
    total = 0.0
    pending: list[tuple[Node, float | None]] = [(result, None)]
    while pending:
        node, before = pending.pop()
        if before is not None:
            total += cost_of(node)
            costs[node] = total - before
        elif node not in costs:
            costs[node] = 0.0
            pending.append((node, total))
            pending += [(operand, None) for operand in reversed(node.operands)]
    return costs, total


@dataclass(frozen=True)
class _MinMax:
    """A min or max after negations are pushed inwards: its operands, and whether each is negated."""

    kind: str
    operands: tuple[tuple[Node, bool], ...]


def _min_or_max(node: Node, negated: bool) -> _MinMax | None:
    """The min or max that a node computes, looking through negations; None for other nodes."""
    while node.op.name == "neg":
        node, negated = node.operands[0], not negated
    kind = _KINDS.get(node.op.name)
    if kind is None:
        return None
    return _MinMax(_OPPOSITE[kind] if negated else kind, tuple((operand, negated) for operand in node.operands))


@dataclass
class _Splitter:
    """Gathers steps into leaves of about `budget` each; counts them in `bits`."""

    budget: float
    costs: dict[Node, float]
    uses: dict[Node, int]
    values: list[Node] = field(default_factory=list)
    bits: int = 0

    def group(self, choice: _MinMax) -> Group:
        """Splits a min or max into a group. Its steps start at the end of the path of costliest members."""
        path: list[tuple[str, list[tuple[Node, bool]]]] = []
        while True:
            members = list(self._members(choice))
            path.append((choice.kind, members))
            splittable = [
                (self.costs[node], position) for position, (node, _) in enumerate(members) if self._should_split(node)
            ]
            if not splittable:
                break
            inner = _min_or_max(*members.pop(max(splittable)[1]))
            assert inner is not None
            choice = inner
        return self._pack_leaves([(kind, *member) for kind, members in reversed(path) for member in members])

    def _pack_leaves(self, steps: Sequence[tuple[str, Node, bool]]) -> Group:
        """Packs steps into leaves up to the budget; members that exceed it become nested groups."""
        parts: list[Part] = []
        waiting: list[Step] = []
        cost = 0.0

        def close_leaf() -> None:
            if waiting:
                parts.append(Leaf(tuple(waiting), self.bits))
                self.bits += 1
                waiting.clear()

        for kind, node, negated in steps:
            member_cost = self.costs[node]
            inner = _min_or_max(node, negated) if self._should_split(node) else None
            if inner is not None:
                close_leaf()
                parts.append(Nested(kind, self.group(inner)))
                continue
            if not waiting or cost + member_cost > 1.25 * self.budget:
                close_leaf()
                cost = 0.0
            waiting.append(self._step(kind, node, negated))
            cost += member_cost
        close_leaf()
        return _limit_parts(parts)

    def _members(self, choice: _MinMax) -> Iterator[tuple[Node, bool]]:
        """The members of a min or max, in order; flattens operands of the same kind that have no other use."""
        pending = [*reversed(choice.operands)]
        while pending:
            node, negated = pending.pop()
            inner = _min_or_max(node, negated)
            if inner is not None and inner.kind == choice.kind and self._is_used_once(node):
                pending.extend(reversed(inner.operands))
            else:
                yield node, negated

    def _should_split(self, node: Node) -> bool:
        """Whether a member is costly enough to be split into leaves itself."""
        return (
            self.costs[node] > 1.5 * self.budget and _min_or_max(node, False) is not None and self._is_used_once(node)
        )

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


def _limit_parts(parts: list[Part]) -> Group:
    """A group with at most `_MAX_PARTS` parts: joins neighbouring parts into groups."""
    while len(parts) > _MAX_PARTS:
        count = math.ceil(len(parts) / _MAX_PARTS)
        cuts = [len(parts) * index // count for index in range(count + 1)]
        parts = [Group(tuple(parts[start:end])) for start, end in pairwise(cuts)]
    return Group(tuple(parts))
