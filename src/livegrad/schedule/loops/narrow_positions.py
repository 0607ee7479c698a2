"""The loop pass `narrow_positions`: 32-bit arithmetic for the positions of reads by computed index.

For devices, whose 64-bit integer arithmetic takes several instructions. `choose_index_width` has checked that all
offsets fit; this pass narrows each position whose range, with all intermediate results, fits as well. Positions that
are in range by the sizes of the kernel need no check.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, constant_op, input_node
from livegrad.ir.node import Key, Node, make_node
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import i32, i64
from livegrad.ir.walk import rebuild, rewrite
from livegrad.ops.comparison import equal, greater, greater_equal, less, less_equal, not_equal
from livegrad.ops.elementwise import add, mul, select, sub
from livegrad.ops.indexing import lookup, lookup_or
from livegrad.passes.affine_bounds import Range, range_of
from livegrad.schedule.kernel import Source, Stage
from livegrad.schedule.loops.nest import LoopNest

_ARITHMETIC = frozenset((add, sub, mul, select))
_COMPARISONS = frozenset((equal, not_equal, less, less_equal, greater, greater_equal))
_MAX_DEPTH = 24  # of the expression of a position


def narrow_positions(nest: LoopNest) -> LoopNest:
    """Computes positions, and comparisons of them, with 32 bits where all their values fit."""
    if nest.index != "int" or not nest.kernel.indexed_buffers:
        return nest
    return nest.with_stages(tuple([_narrow_stage(nest, stage) for stage in nest.kernel.stages]))


def _narrow_stage(nest: LoopNest, stage: Stage) -> Stage:
    sizes = (*nest.dimensions.domain, *nest.dimensions.inner)
    leading = len(stage.body.parameters) - len(stage.sources)
    sources = dict(zip(stage.body.parameters[leading:], stage.sources, strict=True))
    positions = _Positions({node: s.number for node, s in sources.items() if s.kind == "index"}, sizes)
    buffers = nest.step.indexed_buffers
    shapes = {node: buffers[s.number].shape for node, s in sources.items() if s.kind == "indexed"}

    def narrow(node: Node) -> Node | None:
        if node.op in _COMPARISONS:
            return positions.short(node)
        if node.op not in (lookup, lookup_or):
            return None
        first = 1 if node.op is lookup else 2  # the tensor, and the value for elements out of bounds
        given = node.operands[first:]
        short = [positions.short(operand) for operand in given]
        kept = [old if new is None else new for old, new in zip(given, short, strict=True)]
        rebuilt = rebuild(node, (*node.operands[:first], *kept))
        shape = shapes.get(node.operands[0])
        if node.op is lookup_or or shape is None:
            return rebuilt
        known = dict(node.attributes).get("in_range", ())
        proved = [axis for axis, at in enumerate(given) if axis in known or positions.is_inside(at, shape[axis])]
        return lookup(*rebuilt.operands, in_range=tuple(proved)) if proved else rebuilt

    results = rewrite(stage.body.results, narrow)
    if results == stage.body.results:
        return stage
    parameters = (*stage.body.parameters, *positions.indices.values())
    numbers = [Source("index", number) for number in positions.indices]
    return replace(stage, body=make_function(stage.body.name, parameters, results), sources=(*stage.sources, *numbers))


@dataclass
class _Positions:
    """Expressions with 32 bits for those of positions with 64. `numbers` has the dimension of each index."""

    numbers: dict[Node, int]
    sizes: tuple[int, ...]
    indices: dict[int, Node] = field(default_factory=dict)  # with 32 bits, by dimension
    _known: dict[Node, Node | None] = field(default_factory=dict)

    def short(self, node: Node, depth: int = _MAX_DEPTH) -> Node | None:
        """The expression with 32 bits; None if it might not have the same value."""
        if node not in self._known:
            self._known[node] = self._build(node, depth) if depth else None
        return self._known[node]

    def is_inside(self, node: Node, extent: int) -> bool:
        """Whether a position is in range at every point of the kernel."""
        found = range_of(node, self._ranges)
        return found is not None and found[0] >= 0 and found[1] < extent

    def _build(self, node: Node, depth: int) -> Node | None:
        number = self.numbers.get(node)
        if number is not None:
            return self.indices.setdefault(number, input_node(Key(f"index{number}"), i32))
        compares = node.op in _COMPARISONS
        if not compares and (node.type is not i64 or range_of(node, self._ranges) is None):
            return None
        if node.op is constant_op:
            return constant(node.attribute("value"), i32)
        if not compares and node.op not in _ARITHMETIC:
            return None
        operands = [self.short(operand, depth - 1) for operand in node.operands]
        present = [operand for operand in operands if operand is not None]
        with originating_from(node.origins):
            return make_node(node.op, tuple(present), node.attributes) if len(present) == len(operands) else None

    @cached_property
    def _ranges(self) -> dict[Node, Range]:
        return {node: (0, self.sizes[number] - 1) for node, number in self.numbers.items()}
