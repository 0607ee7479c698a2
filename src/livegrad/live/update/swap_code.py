"""The most common code edit: a block gets a new function with the same inputs and outputs.

In: the block and the previous compilation. Out: a `Swap`, which affects one step, or None if `replan` is needed. The
engine tries this first if a frame only contains a code edit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from livegrad.diagnostics import LivegradError
from livegrad.live.compile.flatten import DerivedBlock, find_keys
from livegrad.live.compile.graph_compiler import Compilation
from livegrad.live.compile.live_plan import BlockStep, LivePlan
from livegrad.live.compile.network import NetworkNode, RootRef
from livegrad.live.compile.propagate import Inputs, pin_of
from livegrad.live.frame import EngineError
from livegrad.live.graph.block import Block, Specialized, State
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.keys import pin_key
from livegrad.live.graph.problems import problem
from livegrad.live.graph.sources import Setting, same_value
from livegrad.live.transaction import Transaction


@dataclass(frozen=True, eq=False)
class Swap:
    """Another function for one step; everything else about the step is as it was."""

    node: NetworkNode
    inputs: Inputs
    made: Specialized
    step: BlockStep
    before: BlockStep

    @property
    def is_change(self) -> bool:
        """Whether the function is another one; the same may be written in other words."""
        return self.step.function != self.before.function

    def commit(self, known: Compilation, frame: Transaction) -> None:
        """Makes it part of what was compiled, and of the plan that runs. Cannot fail."""
        key = self.node.key
        assert known.plan is not None
        frame.put(known.shapes.bodies, key, self.made)
        frame.put(known.shapes.inputs, key, self.inputs)
        frame.put(known.plan.steps, key, self.step)


def find_swap(graph: Graph, known: Compilation, running: LivePlan, block: Block) -> Swap | None:
    """The swap that an edit of a block's code comes to; None if it comes to more.

    Raises an `EngineError` that names the block if its new function cannot be made.
    """
    if isinstance(block, Composite | State | DerivedBlock) or running.places:
        return None
    keys = find_keys(graph, block)
    key = keys[0] if len(keys) == 1 else ""
    node, step, inputs = known.network.nodes.get(key), running.steps.get(key), known.shapes.inputs.get(key)
    if node is None or node.block is not block or inputs is None or not isinstance(step, BlockStep):
        return None
    if key in known.network.followers or block.home is None or not _has_same_defaults(block.home, node):
        return None
    try:
        made = block.body.specialize(inputs.given)
    except LivegradError as error:
        raise EngineError([problem(node, pin_of(error, node), error)]) from None
    before = known.shapes.bodies[key]
    if not _fits_in_place_of(made, before):
        return None
    fresh = BlockStep(key, made.function, made.sizes, step.operands, step.results, block.body)  # type: ignore[arg-type]
    return Swap(node, Inputs(block.body, inputs.given, inputs.sources, inputs.results), made, fresh, step)


def _fits_in_place_of(made: Specialized, before: Specialized) -> bool:
    """Whether a function takes and gives just what another one does."""
    if made.function.__class__ is not before.function.__class__ or made.constants or before.constants:
        return False
    if made.sizes != before.sizes or made.features != before.features:
        return False
    mine, others = made.function, before.function
    return mine.parameter_types == others.parameter_types and mine.result_types == others.result_types


def _has_same_defaults(home: Graph, node: NetworkNode) -> bool:
    """Whether what nothing feeds still is what it was: the new body may have other defaults."""
    for name, pin in node.block.inputs.items():
        ref = node.feeds[name]
        if pin in home.sources or not isinstance(ref, RootRef) or ref.key != pin_key(node.key, name):
            continue
        default = node.block.default_of(name)
        # Compared with what runs: a frame that was interrupted may have looked the new default up already.
        if not isinstance(ref.source, Setting) or not _is_same_number(ref.source.value, default):
            return False
        pin.default = default, ref.source  # the same setting from now on: plans are compared by it
    return True


def _is_same_number(before: Any, after: Any) -> bool:
    return isinstance(before, bool | int | float) and before.__class__ is after.__class__ and same_value(before, after)
