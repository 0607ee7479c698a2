"""Compiles a function of the value IR to a plan for a target: three pass pipelines and the driver of every backend.

Value passes rewrite the function. Plan passes decide what is materialised and fused, the order of the steps and their
memory. Loop passes schedule the loops of each kernel. The output of each pass is verified, and `livegrad passes` prints
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from livegrad.diagnostics import UsageError, VerifyError
from livegrad.ir.node import Function, Module
from livegrad.ir.propagate_lines import propagating_lines
from livegrad.ir.recursion import deep_recursion
from livegrad.ir.verify import verify_function
from livegrad.ir.walk import ops_in
from livegrad.ops.aggregate import get
from livegrad.ops.control import call, for_loop, while_loop
from livegrad.ops.convolution import convolve
from livegrad.ops.differential import bwd_diff, fwd_diff
from livegrad.ops.elementwise import detach
from livegrad.ops.fourier import fft, irfft, rfft
from livegrad.ops.indexing import scatter_add
from livegrad.ops.linalg import matmul
from livegrad.ops.maps import map_
from livegrad.ops.members import members_call
from livegrad.ops.movement import concatenate
from livegrad.ops.reduction import reduce
from livegrad.ops.sorting import top_positions
from livegrad.ops.tape import tape_new, tape_unstack
from livegrad.passes.bind_sizes import bind_sizes
from livegrad.passes.differentiate.lower import DERIVATIVE_RULES, differentiate
from livegrad.passes.eliminate_dead_results import eliminate_dead_results
from livegrad.passes.expand import expand_unsupported
from livegrad.passes.expand_prime_transforms import TRANSFORMS, expand_prime_transforms
from livegrad.passes.flatten_signature import flatten_signature
from livegrad.passes.inline_calls import inline_calls, inline_small_calls
from livegrad.passes.interchange_elementwise_loops import interchange_elementwise_loops
from livegrad.passes.interchange_point_loops import interchange_point_loops
from livegrad.passes.loop_over_elements import loop_over_elements
from livegrad.passes.lower_bfloat16 import lower_bfloat16
from livegrad.passes.lower_matmuls import reduce_integer_matmuls, widen_half_matmuls
from livegrad.passes.lower_tapes import lower_tapes
from livegrad.passes.lower_windows import WINDOW_REDUCTIONS, lower_windows
from livegrad.passes.merge_updates import merge_updates
from livegrad.passes.pipeline import Pass, Trace, on_functions, run_passes
from livegrad.passes.privatise_map_sums import privatise_map_sums
from livegrad.passes.push_transpose_through_matmul import push_transpose_through_matmul
from livegrad.passes.regions import BRANCHES, LOOPS, REGIONS
from livegrad.passes.restore_overwritten_tensors import restore_overwritten_tensors
from livegrad.passes.run_members import run_members_in_turn, run_members_together
from livegrad.passes.scalarise_loops import scalarise_loops
from livegrad.passes.scalarise_maps import scalarise_maps
from livegrad.passes.select_by_insertion import select_by_insertion
from livegrad.passes.share_row_reductions import share_row_reductions
from livegrad.passes.simplify import Simplify
from livegrad.passes.simplify_tapes import simplify_tapes
from livegrad.passes.split_at_concatenations import split_at_concatenations
from livegrad.passes.split_complex import split_complex
from livegrad.passes.split_stacks import split_stacks
from livegrad.passes.sum_products_after_loops import sum_products_after_loops
from livegrad.passes.thread_accumulators import thread_accumulators
from livegrad.passes.transform_last_axes import transform_last_axes
from livegrad.passes.unfold_convolutions import unfold_convolutions
from livegrad.passes.unguard_invariants import unguard_invariants
from livegrad.passes.unroll_short_axes import unroll_short_axes
from livegrad.passes.unroll_small_matmuls import unroll_small_matmuls
from livegrad.passes.unroll_small_solves import UNROLLED, unroll_small_solves
from livegrad.schedule.draft import Draft
from livegrad.schedule.loops.accesses import classify_accesses, stream_stores, tile_transposed
from livegrad.schedule.loops.bounds_checks import eliminate_bounds_checks, optimise_scalar_loops
from livegrad.schedule.loops.cost_model import DIVISIONS
from livegrad.schedule.loops.device import (
    assign_rows,
    batch_rows,
    choose_index_width,
    choose_launch,
    keep_rows,
    share_rows,
    tile_transposed_reads,
)
from livegrad.schedule.loops.divergence import share_lockstep
from livegrad.schedule.loops.expand import expand_without_code
from livegrad.schedule.loops.interchange import interchange_transposed
from livegrad.schedule.loops.narrow_positions import narrow_positions
from livegrad.schedule.loops.nest import LoopNest, LoopPass, RowTile
from livegrad.schedule.loops.parallel_loops import parallelise_loops
from livegrad.schedule.loops.skew_and_jam import skew_and_jam
from livegrad.schedule.loops.split_index_sets import split_index_sets
from livegrad.schedule.loops.split_into_items import split_into_items
from livegrad.schedule.loops.unroll_and_jam import unroll_and_jam
from livegrad.schedule.loops.vectorise import (
    choose_lanes,
    interleave_lanes,
    peel_remainders,
    unroll_lane_loops,
    unroll_short_rows,
    vectorise_outer_loops,
    vectorise_short_rows,
)
from livegrad.schedule.loops.version_loops import version_loops
from livegrad.schedule.plan import HostStep, Plan, Step
from livegrad.schedule.plan_passes import (
    PlanPass,
    access_tapes_by_row,
    allocate,
    assign_buffers,
    build_steps,
    fuse,
    materialise,
    order_for_memory,
    store_loop_results,
    tile_row_chains,
    write_in_place,
)
from livegrad.schedule.target import PORTABLE, Target
from livegrad.schedule.verify import verify_step
from livegrad.schedule.verify_draft import verify_chains, verify_groups, verify_memory, verify_row_loops, verify_steps

_CPU, _OTHERS = frozenset({"cpu"}), frozenset({"cuda", "portable"})
_COMPILED = _CPU | _OTHERS  # the reference evaluator and readable C run few passes

# What passes need.
_COUNTED_LOOPS, _CALLS, _MEMBERS, _PRODUCTS = (frozenset({op}) for op in (for_loop, call, members_call, matmul))
_DERIVATIVES = DERIVATIVE_RULES | {fwd_diff, bwd_diff}

AnyPass = TypeVar("AnyPass", Pass, PlanPass, LoopPass)

VALUE_PASSES = (
    Pass(differentiate, needs=_DERIVATIVES, removes=_DERIVATIVES),
    Pass(run_members_in_turn, needs=_MEMBERS, targets=_CPU, optional=True),
    Pass(run_members_together, needs=_MEMBERS, targets=_COMPILED | {"source"}, removes=_MEMBERS),
    Pass(eliminate_dead_results, needs=REGIONS, targets=_COMPILED | {"source"}),
    Pass(inline_calls, needs=_CALLS, targets=_OTHERS, removes=_CALLS),
    Pass(inline_small_calls, needs=_CALLS, targets=_CPU),
    Pass(lower_bfloat16, targets=_COMPILED),
    Pass(Simplify(), "simplify", targets=_COMPILED),
    # From here on, all sizes are integers.
    Pass(on_functions(bind_sizes), binds=True, keeps_signatures=False),
    Pass(on_functions(flatten_signature), keeps_signatures=False),
    Pass(on_functions(expand_unsupported), needs=frozenset({top_positions}), targets=_OTHERS),
    Pass(on_functions(unguard_invariants), needs=_COUNTED_LOOPS, targets=_COMPILED, optional=True),
    Pass(on_functions(transform_last_axes), needs=frozenset({fft, irfft, rfft}), targets=frozenset({"cuda"})),
    Pass(on_functions(expand_prime_transforms), needs=frozenset(TRANSFORMS), targets=_CPU),
    Pass(on_functions(split_complex), targets=_CPU | {"cuda"}),
    Pass(on_functions(widen_half_matmuls), needs=_PRODUCTS, targets=_CPU),
    Pass(on_functions(unfold_convolutions), needs=frozenset({convolve}), targets=_CPU),
    Pass(on_functions(reduce_integer_matmuls), needs=_PRODUCTS, targets=_COMPILED),
    Pass(on_functions(thread_accumulators), needs=_COUNTED_LOOPS, optional=True),
    Pass(on_functions(merge_updates), needs=frozenset({scatter_add}), optional=True),
    Pass(on_functions(simplify_tapes), needs=_COUNTED_LOOPS, optional=True),
    Pass(
        on_functions(restore_overwritten_tensors),
        needs=frozenset({tape_new}),
        targets=_CPU,
        optional=True,
    ),
    Pass(on_functions(sum_products_after_loops), needs=_COUNTED_LOOPS, optional=True),
    Pass(on_functions(lower_tapes), needs=frozenset({tape_new, tape_unstack}), targets=_CPU, optional=True),
    Pass(on_functions(interchange_point_loops), needs=LOOPS, targets=_CPU, optional=True),
    Pass(on_functions(loop_over_elements), needs=LOOPS, targets=_CPU, optional=True),
    Pass(on_functions(scalarise_loops), needs=LOOPS | BRANCHES, targets=_CPU, optional=True),
    Pass(on_functions(interchange_elementwise_loops), needs=_COUNTED_LOOPS, targets=_CPU, optional=True),
    Pass(on_functions(unroll_small_matmuls), needs=_PRODUCTS, targets=_CPU, optional=True),
    Pass(on_functions(unroll_short_axes), needs=frozenset({reduce}), targets=_CPU | {"cuda"}, optional=True),
    Pass(on_functions(unroll_small_solves), needs=frozenset(UNROLLED), targets=_CPU | {"cuda"}, optional=True),
    Pass(on_functions(select_by_insertion), needs=frozenset({top_positions}), targets=_CPU, optional=True),
    Pass(on_functions(split_stacks), needs=frozenset({concatenate}), targets=_CPU, optional=True),
    Pass(on_functions(split_at_concatenations), needs=frozenset({concatenate}), targets=_CPU, optional=True),
    Pass(on_functions(privatise_map_sums), needs=frozenset({map_}), targets=_CPU, optional=True),
    Pass(on_functions(lower_windows), needs=frozenset({*WINDOW_REDUCTIONS, convolve})),
    Pass(on_functions(scalarise_maps), needs=frozenset({get, detach, map_})),
    Pass(on_functions(push_transpose_through_matmul), needs=_PRODUCTS, optional=True),
    Pass(on_functions(share_row_reductions), needs=frozenset({reduce}), optional=True),
)


def plan_loop_bodies(draft: Draft) -> None:
    """Compiles the body of each loop over tensors with the same passes.

    Bodies run step by step. Their plans are bound to memory once: state is double-buffered, or updated in place
    where an iteration writes only parts of it.
    """
    target = draft.target.without("tile_row_chains")
    for step_index, step in enumerate(draft.steps):
        if isinstance(step, HostStep) and step.loop is not None:
            # An iteration may overwrite its input state: nothing reads it afterwards.
            states = {1 + index: index for index in range(len(step.loop.state))}
            loop = replace(step.loop, plan=compile_plan(step.loop.body, target, overwrites=states))
            draft.steps[step_index] = replace(step, loop=loop)


PLAN_PASSES = (
    PlanPass(materialise),
    PlanPass(fuse, verify_groups),
    PlanPass(order_for_memory, verify_groups),
    PlanPass(assign_buffers),
    PlanPass(write_in_place, optional=True),
    PlanPass(build_steps, verify_steps),
    PlanPass(access_tapes_by_row, verify_row_loops, needs=LOOPS),
    PlanPass(plan_loop_bodies, needs=LOOPS),
    PlanPass(store_loop_results, verify_steps, needs=LOOPS, optional=True),
    PlanPass(tile_row_chains, verify_chains, needs=_PRODUCTS, optional=True),
    PlanPass(allocate, verify_memory),
)

LOOP_PASSES: dict[str, tuple[LoopPass, ...]] = {
    "cpu": (
        LoopPass(vectorise_outer_loops),
        LoopPass(interchange_transposed),
        LoopPass(vectorise_short_rows),
        LoopPass(unroll_short_rows),
        LoopPass(choose_lanes),
        LoopPass(unroll_lane_loops),
        LoopPass(classify_accesses),
        LoopPass(tile_transposed),
        LoopPass(stream_stores, by_tile=True),
        LoopPass(split_into_items, by_tile=True),
        LoopPass(expand_without_code),
        LoopPass(eliminate_bounds_checks, needs=LOOPS, optional=True),
        LoopPass(unroll_and_jam, needs=_COUNTED_LOOPS, optional=True),
        LoopPass(skew_and_jam, needs=_COUNTED_LOOPS, optional=True),
        LoopPass(split_index_sets, needs=_COUNTED_LOOPS, optional=True),
        LoopPass(parallelise_loops, needs=_COUNTED_LOOPS, optional=True),
        LoopPass(version_loops, needs=_COUNTED_LOOPS, optional=True),
        LoopPass(optimise_scalar_loops, needs=LOOPS, optional=True),
        LoopPass(share_lockstep, needs=frozenset({while_loop}), optional=True),
        LoopPass(peel_remainders, optional=True),
        LoopPass(interleave_lanes, needs=DIVISIONS, optional=True),
    ),
    "cuda": (
        LoopPass(assign_rows),
        LoopPass(share_rows),
        LoopPass(keep_rows, optional=True),
        LoopPass(tile_transposed_reads, optional=True),
        LoopPass(batch_rows),
        LoopPass(choose_index_width),
        LoopPass(narrow_positions, optional=True),
        LoopPass(choose_launch),
        LoopPass(expand_without_code),
    ),
}

# The names that `Target.without` accepts. The first four are optional parts of passes that always run.
OPTIONAL = (
    *("fuse", "fuse_siblings", "guard_padded_loads", "store_repeated"),
    *(step.name for step in (*VALUE_PASSES, *PLAN_PASSES, *LOOP_PASSES["cpu"]) if step.optional),
)
OPTIONAL_ON_DEVICES = ("select_parts", *(step.name for step in LOOP_PASSES["cuda"] if step.optional))


@lru_cache(maxsize=64)
def passes_for(target: Target) -> tuple[tuple[Pass, ...], tuple[Pass, ...]]:
    """The value passes of a target: those valid for all sizes, and those that run for each set of sizes."""
    optional = OPTIONAL + OPTIONAL_ON_DEVICES
    unknown = sorted(target.skipped.difference(optional))
    if unknown:
        raise UsageError(f"there is no optimisation `{unknown[0]}`", expected=f"one of {', '.join(optional)}")
    passes = [p for p in enabled_passes(VALUE_PASSES, target) if p.targets is None or target.name in p.targets]
    first_bound = next(index for index, step in enumerate(passes) if step.binds)
    return tuple(passes[:first_bound]), tuple(passes[first_bound:])


def enabled_passes(passes: tuple[AnyPass, ...], target: Target) -> tuple[AnyPass, ...]:
    """These passes, without the optional ones that the target skips."""
    if not target.skipped:
        return passes
    return tuple([step for step in passes if not step.optional or step.name not in target.skipped])


def lower(function: Function, target: Target = PORTABLE, trace: Trace | None = None) -> Function:
    """Runs the value passes that are valid for all sizes: derivatives, inlining, simplification.

    >>> import livegrad as lg
    >>> print(lg.ir.print_function(lower(lg.ir.trace(lambda x: x * 1.0 + x, lg.f32))).splitlines()[1])
      %0 = add(%p0, %p0): f32
    """
    return lower_module(Module((function,)), target, trace).functions[0]


def lower_module(module: Module, target: Target = PORTABLE, trace: Trace | None = None) -> Module:
    """`lower` for all functions of a module. The first call of `trace` reports the input."""
    if trace is not None:
        trace("input", module)
    return run_passes(module, passes_for(target)[0], trace=trace)


class Compilation:
    """Compiles a lowered function to a plan for one set of sizes.

    Iterating yields each step as soon as it is scheduled, so that a backend can compile it while later steps are built.
    `plan` is the result.
    """

    def __init__(
        self,
        lowered: Function,
        target: Target,
        sizes: Mapping[str, int] | None = None,
        trace: Trace | None = None,
        overwrites: Mapping[int, int] | None = None,
    ) -> None:
        self._lowered, self._target, self._sizes, self._trace = lowered, target, sizes, trace
        self._overwrites = overwrites or {}
        self._steps = self._run()
        self._plan: Plan | None = None

    def __iter__(self) -> Iterator[Step]:
        return self._steps

    @property
    def plan(self) -> Plan:
        """The plan. Builds the steps that have not been requested yet."""
        for _ in self._steps:
            pass
        assert self._plan is not None
        return self._plan

    def _run(self) -> Iterator[Step]:
        """Runs the passes up to the next step. Source lines propagate in the passes, but not in the consumer."""
        lines = propagating_lines((self._lowered,))
        steps = self._run_passes()
        while True:
            with lines, deep_recursion():
                step = next(steps, None)
            if step is None:
                return
            yield step

    def _run_passes(self) -> Iterator[Step]:
        passes = passes_for(self._target)[1]
        module = run_passes(Module((self._lowered,)), passes, self._sizes, self._trace)
        draft, ops = Draft(module.functions[0], self._target, self._overwrites), ops_in(module.functions[0])
        for step in enabled_passes(PLAN_PASSES, self._target):
            try:
                if not step.needs or not step.needs.isdisjoint(ops):
                    yield from step.run(draft) or ()
                    step.verify(draft)
            except Exception as error:
                error.add_note(f"in pass `{step.name}`")
                raise
            if self._trace is not None:
                self._trace(step.name, draft)
        self._plan = draft.plan()


def compile_plan(
    function: Function,
    target: Target,
    sizes: Mapping[str, int] | None = None,
    trace: Trace | None = None,
    overwrites: Mapping[int, int] | None = None,
) -> Plan:
    """Compiles a function to a plan for a target, with all value passes and plan passes.

    `overwrites` maps indices of arguments to indices of results: the plan may store the result in the memory of the
    argument.
    """
    return Compilation(lower(function, target, trace), target, sizes, trace, overwrites).plan


@deep_recursion()
def lower_loops(nest: LoopNest) -> LoopNest:
    """Runs all loop passes of a target on the loop nest of a kernel step."""
    for loop_pass in enabled_passes(LOOP_PASSES[nest.target.name], nest.target):
        before, nest = nest, loop_pass(nest)
        if nest.step is not before.step:
            verify_step(nest.step, loop_pass.name)
            _verify_bodies(before, nest, loop_pass.name)
    return nest


def _verify_bodies(before: LoopNest, after: LoopNest, name: str) -> None:
    bodies = {stage.body for stage in before.kernel.stages}
    for stage in after.kernel.stages:
        if stage.body not in bodies:
            try:
                _verify_body(stage.body)
            except VerifyError as error:
                error.add_note(f"in pass `{name}`")
                raise


@lru_cache(maxsize=4096)
def _verify_body(body: Function) -> None:
    """Verifies the body of a stage. Cached: many kernels share a body."""
    verify_function(body)


def tile_loops(nest: LoopNest, tile: RowTile) -> LoopNest:
    """Restricts the loop nest of a step to a tile of a row chain. The nest must not be reordered."""
    nest = nest.replace(tile=tile)
    for loop_pass in LOOP_PASSES[nest.target.name]:
        nest = loop_pass(nest) if loop_pass.by_tile else nest
    return nest
