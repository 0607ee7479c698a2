"""Swaps the function of one step: the most common code edit, whose new function has the same inputs and outputs.

In: a block and the previous compilation. Out: a `Swap`, or None if the edit needs `replan`. `Applier` tries this first
if a code edit is the only edit of a frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from livegrad.diagnostics import LivegradError
from livegrad.live.compile.flatten import DerivedBlock, find_keys
from livegrad.live.compile.graph_compiler import Compilation
from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.compile.live_steps import BlockStep
from livegrad.live.compile.network import NetworkNode, RootRef
from livegrad.live.compile.propagate import Inputs, pin_of
from livegrad.live.frame import EngineError
from livegrad.live.graph.block import Block, Specialized, State
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.keys import pin_key
from livegrad.live.graph.problems import make_problem
from livegrad.live.graph.sources import Setting, same_value
from livegrad.live.transaction import Transaction


@dataclass(frozen=True, eq=False)
class Swap:
    """A new function for one step, which is otherwise unchanged."""

    node: NetworkNode
    inputs: Inputs
    specialized: Specialized
    step: BlockStep
    before: BlockStep

    @property
    def is_change(self) -> bool:
        """Whether the function differs; other source text may give an equal function."""
        return self.step.function != self.before.function

    def commit(self, compilation: Compilation, frame: Transaction) -> None:
        """Installs the swap in the compilation and the running plan. Cannot fail."""
        key = self.node.key
        assert compilation.plan is not None
        frame.set_entry(compilation.shapes.bodies, key, self.specialized)
        frame.set_entry(compilation.shapes.inputs, key, self.inputs)
        frame.set_entry(compilation.plan.steps, key, self.step)


def find_swap(graph: Graph, compilation: Compilation, running: LivePlan, block: Block) -> Swap | None:
    """The swap for a code edit of a block; None if the edit needs `replan`.

    Raises an `EngineError` with the block if its new function cannot be specialised.
    """
    if isinstance(block, Composite | State | DerivedBlock) or running.slot_of:
        return None
    keys = find_keys(graph, block)
    key = keys[0] if len(keys) == 1 else ""
    node, step, inputs = compilation.network.nodes.get(key), running.steps.get(key), compilation.shapes.inputs.get(key)
    if node is None or node.block is not block or inputs is None or not isinstance(step, BlockStep):
        return None
    if key in compilation.network.followers or block.home is None or not _has_same_defaults(block.home, node):
        return None
    try:
        specialized = block.body.specialize(inputs.input_types)
    except LivegradError as error:
        raise EngineError([make_problem(node, pin_of(error, node), error)]) from None
    before = compilation.shapes.bodies[key]
    if not _has_same_signature(specialized, before):
        return None
    new_step = BlockStep(key, specialized.function, specialized.sizes, step.operands, step.results, block.body)  # type: ignore[arg-type]
    return Swap(
        node, Inputs(block.body, inputs.input_types, inputs.sources, inputs.results), specialized, new_step, step
    )


def _has_same_signature(specialized: Specialized, before: Specialized) -> bool:
    """Whether a function has the same parameters and results as another one."""
    if specialized.function.__class__ is not before.function.__class__ or specialized.constants or before.constants:
        return False
    if specialized.sizes != before.sizes or specialized.features != before.features:
        return False
    new, old = specialized.function, before.function
    return new.parameter_types == old.parameter_types and new.result_types == old.result_types


def _has_same_defaults(home: Graph, node: NetworkNode) -> bool:
    """Whether unconnected inputs keep their values. They may not, because the new body may have other defaults."""
    for name, pin in node.block.inputs.items():
        ref = node.feeds[name]
        if pin in home.sources or not isinstance(ref, RootRef) or ref.key != pin_key(node.key, name):
            continue
        default = node.block.default_of(name)
        # Compared with the running value: an interrupted frame may have cached the new default already.
        if not isinstance(ref.source, Setting) or not _is_same_number(ref.source.value, default):
            return False
        pin.default = default, ref.source  # keep the setting, because plans compare settings by identity
    return True


def _is_same_number(before: Any, after: Any) -> bool:
    return isinstance(before, bool | int | float) and before.__class__ is after.__class__ and same_value(before, after)
