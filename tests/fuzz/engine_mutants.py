"""Puts defects back into the engine, one at a time, and sees that the random editor finds each within 10,000 edits.

`python -m tests.fuzz.engine_mutants [NAMES] [--json]` runs them all, or those named; `--json` keeps the counts in
`benchmarks/results`. Each is a small patch of the engine.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np

from benchmarks import machine
from benchmarks.record import write_record
from livegrad.live import runtime
from livegrad.live.compile import flatten, graph_compiler, live_plan, live_steps, propagate, wire
from livegrad.live.cpu import cpu_calls, cpu_executor, cut_off
from livegrad.live.graph import block, block_graph, composite, journal
from livegrad.live.update import apply, replan, rewire
from tests.fuzz import engine as editor
from tests.fuzz import engine_files, engine_mutants_run, engine_threads  # noqa: F401  (notes its mutants)
from tests.fuzz.engine_mutation import MUTANTS, mutant, rewritten

MOST_EDITS = 10_000
_EDITS_OF_A_SEED: dict[Any, int] = {editor: editor.EDITS, engine_threads: 36, engine_files: engine_files.SAVES}


@mutant("an unfed input inside of a region is not looked at")
def _unfed_in_region() -> Iterator[Any]:
    validate = graph_compiler.validate

    def forgetful(network: Any, *nodes: Any) -> list[Any]:
        return [one for one in validate(network, *nodes) if one.node in network.nodes]

    with mock.patch.object(graph_compiler, "validate", forgetful), mock.patch.object(replan, "validate", forgetful):
        yield


@mutant("a disconnected number stays")
def _disconnected_number_stays() -> Iterator[Any]:
    disconnect = block_graph.Graph.disconnect

    def forgetful(self: Any, target: Any) -> None:
        entries = len(self.journal.entries)
        before = self.sources.get(target)
        disconnect(self, target)
        if (
            isinstance(before, block_graph.Setting)
            and before.is_number
            and target.block.default_of(target.name) is not None
        ):
            del self.journal.entries[entries:]

    with mock.patch.object(block_graph.Graph, "disconnect", forgetful):
        yield


@mutant("a loop's start may not change its kind")
def _start_keeps_its_kind() -> Iterator[Any]:
    give = block_graph.Graph._set_value

    def forgetful(self: Any, target: Any, value: Any) -> None:
        entries = len(self.journal.entries)
        before = self.sources.get(target)
        give(self, target, value)
        now = self.sources.get(target)
        was, given = getattr(before, "input_type", None), getattr(now, "input_type", None)
        if target.name in getattr(target.block, "carried", ()) and was is not None and was != given:
            del self.journal.entries[entries:]

    with mock.patch.object(block_graph.Graph, "_set_value", forgetful):
        yield


@mutant("an output that is gone inside of a composite is looked for")
def _dangling_output() -> Iterator[Any]:
    def trusting(self: Any, pin: Any) -> flatten.OutputRef:
        level = self
        while isinstance(pin.block, composite.Composite) and not hasattr(pin.block, "bodies"):
            level, pin = level.inside(pin.block), pin.block.inner_outputs[pin.name]
        return flatten.OutputRef(level.key_of(pin.block), pin.name)

    with mock.patch.object(flatten._Flattener, "output", trusting):
        yield


@mutant("a While's pin and its output `condition` share a key")
def _shared_condition() -> Iterator[Any]:
    with mock.patch.object(flatten.NetworkNode, "result_key", lambda self, name: flatten.pin_key(self.key, name)):
        yield


@mutant("an exception in a frame loses its edits")
def _lost_edits() -> Iterator[Any]:
    recover = apply.Applier.recover

    def forgetful(self: Any) -> None:
        recover(self)
        self._graph.journal.applying = []

    with mock.patch.object(apply.Applier, "recover", forgetful):
        yield


@mutant("a number in a composite reaches one of its uses")
def _one_use() -> Iterator[Any]:
    find_keys = flatten.find_keys

    def first(*arguments: Any) -> list[str]:
        return find_keys(*arguments)[:1]

    with mock.patch.object(apply, "find_keys", first):
        yield


@mutant("names that look like paths collide")
def _colliding_names() -> Iterator[Any]:
    with mock.patch.object(flatten, "path_part", lambda name: name):
        yield


@mutant("a loop that begins with a Python float is float64")
def _float64() -> Iterator[Any]:
    with mock.patch.object(propagate, "_initial_type", lambda ref, shapes: propagate.input_type_of(ref, shapes).type):
        yield


@mutant("a State that takes a name goes on from the old value")
def _state_keeps_value() -> Iterator[Any]:
    class Same(live_plan.StateSpec):
        def __init__(self, key: str, value: str, next: str, initial: Any, owner: object = None) -> None:
            super().__init__(key, value, next, initial, None)

    with mock.patch.object(wire, "StateSpec", Same):
        yield


@mutant("what came out as it was still makes its readers run")
def _no_cut_off() -> Iterator[Any]:
    start = runtime.Runtime.__init__

    def wasteful(self: Any, *arguments: Any) -> None:
        start(self, *arguments)
        self.uses_early_cutoff = False

    with mock.patch.object(runtime.Runtime, "__init__", wasteful):
        yield


@mutant("a State that stays as it was makes its readers run")
def _state_moves_always() -> Iterator[Any]:
    with mock.patch.object(cpu_executor, "same_bits", return_value=False):
        yield


@mutant("a number in a branch that is not taken runs the region")
def _region_is_one_unit() -> Iterator[Any]:
    must_run = cut_off.CutOff.must_run

    def wasteful(self: Any, key: str, changed: Any) -> bool:
        step = self._executable.plan.steps[key]
        reads = set(map(live_steps.operand_key, step.all_operands()))
        return not reads.isdisjoint(changed) or must_run(self, key, changed)

    with mock.patch.object(cut_off.CutOff, "must_run", wasteful):
        yield


@mutant("regions inside of regions have no runs")
def _no_runs_of_inner_regions() -> Iterator[Any]:
    start_of = rewritten(cpu_calls.CallFactory._make_run_start, ("self._count(step.key)", "pass"))
    with mock.patch.object(cpu_calls.CallFactory, "_make_run_start", start_of):
        yield


@mutant("who read a block that went is not looked at")
def _readers_stay() -> Iterator[Any]:
    with mock.patch.object(replan, "_readers_of", return_value=()):
        yield


@mutant("a connection backwards moves no step")
def _order_stays() -> Iterator[Any]:
    with mock.patch.object(replan, "reorder"):
        yield


@mutant("a value that one of several readers is wired with anew is theirs alone")
def _number_for_one() -> Iterator[Any]:
    with mock.patch.object(rewire, "_keep_numbers"):
        yield


@mutant("threads are not kept apart", run=engine_threads)
def _no_lock() -> Iterator[Any]:
    class Open:
        def acquire(self, *arguments: Any, **named: Any) -> bool:
            return True

        def release(self) -> None:
            pass

        def _is_owned(self) -> bool:
            return True  # what is torn is to be seen in the values

        __enter__ = acquire

        def __exit__(self, *arguments: Any) -> None:
            pass

    start = engine_threads.lg.Engine.__init__

    def unlocked(self: Any, *arguments: Any, **named: Any) -> None:
        start(self, *arguments, **named)
        self._runtime.lock = self._journal.lock = Open()

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with mock.patch.object(engine_threads.lg.Engine, "__init__", unlocked):
            yield
    finally:
        sys.setswitchinterval(switch)


@mutant("locks are taken in one order, whatever a thread has already", run=engine_threads)
def _ordered_locks() -> Iterator[Any]:
    @contextlib.contextmanager
    def hold_in_order(journals: Any) -> Iterator[None]:
        with contextlib.ExitStack() as locks:
            for one in sorted(journals, key=lambda journal: journal.order):
                locks.enter_context(one.lock)
            yield

    with (
        mock.patch.object(block_graph, "hold_locks", hold_in_order),
        mock.patch.object(engine_threads, "_LONG", 5.0),
    ):
        yield


@mutant("a block that only branches read which are not taken runs")
def _all_needed() -> Iterator[Any]:
    with mock.patch.object(cpu_executor, "find_on_demand_steps", return_value=frozenset()):
        yield


@mutant("blocks in regions have no runs")
def _no_inner_runs() -> Iterator[Any]:
    with mock.patch.object(runtime, "notify_calls", return_value=lambda calls: None):
        yield


@mutant("a composite that is put into one that nobody runs tells that one of its edits")
def _journal_of_others() -> Iterator[Any]:
    with mock.patch.object(
        journal.Journal, "belongs_to_engine", property(lambda self: False, lambda self, value: None)
    ):
        yield


@mutant("an input may be exposed twice")
def _exposed_twice() -> Iterator[Any]:
    with mock.patch.object(composite.Composite, "_require_exposable"):
        yield


@mutant("a name may be a number")
def _any_name() -> Iterator[Any]:
    make_pins = block.Block._make_pins

    def trusting(self: Any, inputs: Any, outputs: Any) -> None:
        self.name = str(self.name)
        make_pins(self, inputs, outputs)

    with mock.patch.object(block.Block, "_make_pins", trusting):
        yield


def edits_until_found(name: str) -> int | None:
    """How many edits it takes to find a defect; None: more than there may be."""
    patch, options = MUTANTS[name]
    options = dict(options)
    fuzzer = options.pop("run", editor)
    run, each = fuzzer.run_one, _EDITS_OF_A_SEED[fuzzer]
    for seed in range(MOST_EDITS // each):
        with contextlib.contextmanager(patch)():
            differs = _differs(run, seed, options)
        if differs and not _differs(run, seed, options):  # what is wrong without the defect does not find it
            return (seed + 1) * each
    return None


def _differs(run: Callable[..., Any], seed: int, options: dict[str, Any]) -> bool:
    try:
        run(seed, **options)
    except AssertionError:
        return True
    return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs mutants and says how many edits each took."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.engine_mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="of defects (default: all)")
    parser.add_argument("--json", action="store_true", help="keep the counts in benchmarks/results")
    asked = parser.parse_args(arguments)
    edits: dict[str, int | None] = {}
    for name in asked.names or MUTANTS:
        edits[name] = found = edits_until_found(name)
        print(f"{'NOT FOUND' if found is None else f'{found:>6,} edits'}  {name}", flush=True)
    if asked.json:
        command = "python -m tests.fuzz.engine_mutants"
        record = {"most_edits": MOST_EDITS, "edits_until_found": edits}
        path = write_record("fuzz-engine_mutants", machine.describe({}), {}, command=command, fuzz=record)
        print(f"wrote benchmarks/results/{path.name}")
    return 1 if None in edits.values() else 0


if __name__ == "__main__":
    np.seterr(all="ignore")
    sys.exit(main())
