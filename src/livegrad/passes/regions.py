"""A uniform view of nodes that run functions: calls, branches, loops and maps.

Passes that drop, move or replace inputs and outputs of such nodes read and rebuild them through it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from livegrad.ir.node import Attribute, Function, Node, make_node
from livegrad.ir.op import Op
from livegrad.ir.walk import nodes_of
from livegrad.ops.aggregate import get, make_tuple
from livegrad.ops.control import call, cond, for_loop, map_, switch, while_loop
from livegrad.ops.custom import recompute_call
from livegrad.passes.functions import rearrange_signature
from livegrad.state import Owned

# Operands that no function takes: a predicate, a selector, a number of iterations.
_LEADING: dict[Op, int] = {call: 0, recompute_call: 0, cond: 1, switch: 1, for_loop: 1, while_loop: 0, map_: 0}
REGIONS = frozenset(_LEADING)
LOOPS = (for_loop, while_loop)
BRANCHES = (cond, switch)
_T = TypeVar("_T")


@dataclass(frozen=True)
class Region:
    """A node that runs functions: its leading operands, then the arguments that the functions take.

    `offsets` says how many parameters of each function come before the arguments: one for a loop body, its index.
    """

    node: Node
    leading: tuple[Node, ...]
    arguments: tuple[Node, ...]
    functions: tuple[Function, ...]
    offsets: tuple[int, ...]

    @property
    def is_loop(self) -> bool:
        return self.node.op in LOOPS

    @property
    def number(self) -> int:
        """How many results the node gives; for a loop, as many as it carries values."""
        return len(self.functions[-1].results)

    @property
    def packed(self) -> bool:
        """Whether the results are members of a tuple, so that some can go."""
        return self.is_loop or self.number != 1

    def rebuild(
        self, operands: Sequence[Node], functions: Sequence[Function], arguments: Sequence[int], results: Sequence[int]
    ) -> Node:
        """The node over all its operands anew, with these of its arguments and results; the functions fit them."""
        leading, values = operands[: len(self.leading)], operands[len(self.leading) :]
        changes: dict[str, Attribute] = _named_functions(self.node.op, tuple(functions))
        if self.is_loop:
            changes["carried"] = len(results)
        if self.node.op is map_:
            changes["lifted"] = tuple(self.node.attribute("lifted")[index] for index in arguments)
            changes["summed"] = tuple(self.node.attribute("summed")[index] for index in results)
        attributes = tuple((name, changes.get(name, value)) for name, value in self.node.attributes)
        return make_node(self.node.op, (*leading, *(values[index] for index in arguments)), attributes)

    def narrow(
        self,
        arguments: Sequence[int],
        results: Sequence[int] | None = None,
        stand_ins: Mapping[int, int | Node] | None = None,
    ) -> Node:
        """The node with these of its arguments, in this order, and these of its results (all, when not told)."""
        kept = range(self.number) if results is None else results
        functions = [
            rearrange_signature(
                function,
                parameter_order(offset, arguments),
                kept if function is self.functions[-1] or not self.is_loop else None,
                {offset + i: offset + s if isinstance(s, int) else s for i, s in (stand_ins or {}).items()},
            )
            for function, offset in zip(self.functions, self.offsets, strict=True)
        ]
        return self.rebuild(self.node.operands, functions, arguments, kept)

    @property
    def members(self) -> list[Node]:
        """The results one by one."""
        return [get(self.node, index=index) for index in range(self.number)] if self.packed else [self.node]

    def pack(self, members: Sequence[Node]) -> Node:
        """All results as the one value that this node gives."""
        return make_tuple(*members) if self.packed else members[0]


def first_argument(node: Node) -> int:
    """Which operand of a region is the first that its functions take: the first carried value of a loop.

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import f32, i64
    >>> from livegrad.ops.control import make_for_loop
    >>> power = trace(lambda n, x: make_for_loop(n, lambda i, y: y * x, x)[0], i64, f32)
    >>> first_argument(power.results[0].operands[0])
    1
    """
    return _LEADING[node.op]


def region_of(node: Node) -> Region | None:
    """The node as a region, or None when it runs no functions (derivatives, which name a function, run none)."""
    leading = _LEADING.get(node.op)
    if leading is None:
        return None
    match node.op.name:
        case "cond":
            functions: tuple[Function, ...] = (node.attribute("then"), node.attribute("otherwise"))
        case "switch":
            functions = node.attribute("branches")
        case "for_loop":
            functions = (node.attribute("body"),)
        case "while_loop":
            functions = (node.attribute("condition"), node.attribute("body"))
        case _:
            functions = (node.attribute("function"),)
    offsets = {for_loop: (1,), while_loop: (0, 1)}.get(node.op, (0,) * len(functions))
    return Region(node, node.operands[:leading], node.operands[leading:], functions, offsets)


def region_member(node: Node, index: int) -> Node:
    """One result of a node that runs functions."""
    region = region_of(node)
    assert region is not None
    return get(node, index=index) if region.packed else node


def fixed_point(start: _T, step: Callable[[_T], _T]) -> _T:
    """The first value of `start, step(start), ...` that `step` leaves as it is. It exists if steps only add to a set.

    >>> fixed_point(0b001, lambda bits: (bits | bits << 1) & 0b111)
    7
    """
    value = start
    while (following := step(value)) != value:
        value = following
    return value


def carried_flags(initial: Sequence[bool], iterate: Callable[[tuple[bool, ...]], Sequence[bool]]) -> tuple[bool, ...]:
    """Which carried values of a loop have a property in some iteration.

    `initial` says it of the values before the loop. `iterate` takes the flags of the values that go into an iteration
    and returns those of the values that come out of it.

    >>> carried_flags((True, False, False), lambda flags: (False, flags[0], flags[1]))
    (True, True, True)
    """

    def grow(flags: tuple[bool, ...]) -> tuple[bool, ...]:
        return tuple([before or after for before, after in zip(flags, iterate(flags), strict=True)])

    return fixed_point(tuple(initial), grow)


def _named_functions(op: Op, functions: tuple[Function, ...]) -> dict[str, Attribute]:
    if op is switch:
        return {"branches": functions}
    names = {cond: ("then", "otherwise"), for_loop: ("body",), while_loop: ("condition", "body")}.get(op, ("function",))
    return dict(zip(names, functions, strict=True))


def parameter_order(offset: int, arguments: Sequence[int]) -> list[int]:
    """The parameters of a region's function that takes these arguments after `offset` parameters of its own."""
    return [*range(offset), *(offset + index for index in arguments)]


_used: Owned[weakref.WeakKeyDictionary[Function, frozenset[int]]] = Owned(weakref.WeakKeyDictionary)


def used_parameters(function: Function) -> frozenset[int]:
    """The indices of the parameters that the results depend on."""
    used = _used.current
    indices = used.get(function)
    if indices is None:
        reached = set(nodes_of(function))
        indices = frozenset(index for index, node in enumerate(function.parameters) if node in reached)
        used[function] = indices
    return indices
