"""A uniform view of nodes that run functions: calls, branches, loops and maps.

Passes use it to drop, move or replace inputs and outputs of such nodes.
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
from livegrad.ops.control import call, cond, for_loop, switch, while_loop
from livegrad.ops.custom import recompute_call
from livegrad.ops.maps import map_
from livegrad.passes.functions import rearrange_signature
from livegrad.state import Owned

# The number of operands that are not passed to the functions: a predicate, a selector, or the number of iterations.
_LEADING: dict[Op, int] = {call: 0, recompute_call: 0, cond: 1, switch: 1, for_loop: 1, while_loop: 0, map_: 0}
REGIONS = frozenset(_LEADING)
LOOPS = frozenset((for_loop, while_loop))
BRANCHES = frozenset((cond, switch))
_T = TypeVar("_T")


@dataclass(frozen=True)
class Region:
    """A node that runs functions. Its operands are the leading ones, then the arguments of the functions.

    `offsets` has the number of parameters of each function that precede the arguments: one for a loop body, its index.
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
        """The number of results; for a loop, of carried values."""
        return len(self.functions[-1].results)

    @property
    def packed(self) -> bool:
        """Whether the results are members of a tuple."""
        return self.is_loop or self.number != 1

    def rebuild(
        self, operands: Sequence[Node], functions: Sequence[Function], arguments: Sequence[int], results: Sequence[int]
    ) -> Node:
        """Rebuilds the node over new operands, with the selected arguments and results.

        `functions` must already have matching parameters and results.
        """
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
        """Rebuilds the node with the selected arguments, in this order, and the selected results (all by default)."""
        selected = range(self.number) if results is None else results
        functions = [
            rearrange_signature(
                function,
                parameter_order(offset, arguments),
                selected if function is self.functions[-1] or not self.is_loop else None,
                {offset + i: offset + s if isinstance(s, int) else s for i, s in (stand_ins or {}).items()},
            )
            for function, offset in zip(self.functions, self.offsets, strict=True)
        ]
        return self.rebuild(self.node.operands, functions, arguments, selected)

    @property
    def members(self) -> list[Node]:
        """The results as nodes."""
        return [get(self.node, index=index) for index in range(self.number)] if self.packed else [self.node]

    def pack(self, members: Sequence[Node]) -> Node:
        """Packs results into one value of the node's type."""
        return make_tuple(*members) if self.packed else members[0]


def first_argument(node: Node) -> int:
    """The index of the first operand that is passed to the functions; for a loop, of the first carried value.

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import f32, i64
    >>> from livegrad.ops.control import make_for_loop
    >>> power = trace(lambda n, x: make_for_loop(n, lambda i, y: y * x, x)[0], i64, f32)
    >>> first_argument(power.results[0].operands[0])
    1
    """
    return _LEADING[node.op]


def region_of(node: Node) -> Region | None:
    """The node as a region; None if it runs no functions. Derivative ops have a function but do not run it."""
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
    """A result of a node that runs functions, by index."""
    region = region_of(node)
    assert region is not None
    return get(node, index=index) if region.packed else node


def fixed_point(start: _T, step: Callable[[_T], _T]) -> _T:
    """Iterates `step` from `start` to a fixed point. Terminates if steps only add to a finite set.

    >>> fixed_point(0b001, lambda bits: (bits | bits << 1) & 0b111)
    7
    """
    value = start
    while (following := step(value)) != value:
        value = following
    return value


def carried_flags(initial: Sequence[bool], iterate: Callable[[tuple[bool, ...]], Sequence[bool]]) -> tuple[bool, ...]:
    """Which carried values of a loop have a property in some iteration.

    `initial` has the flags of the initial values. `iterate` maps the flags before an iteration to those after it.

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
    """The parameter indices of a region's function that correspond to these arguments, after its first `offset`."""
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
