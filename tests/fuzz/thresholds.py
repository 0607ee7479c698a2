"""Random programs with the thresholds of the compiler shrunk, so that small tensors take the paths of large ones.

A threshold says from which size on another path is worth it; it never decides whether that path is right. The oracles
are the reference backend for tensor programs and CPython for loops. Where only work is shared or stored in another way,
the results also have the same bits as without shrinking.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import livegrad as lg
from livegrad.diagnostics import KernelCheckError
from livegrad.runtime.cpu.cpu_function import run_function
from livegrad.runtime.object_cache import CacheSettings, ObjectCache, set_default_cache
from livegrad.state import fresh_session
from tests.conformance.guarded_memory import guarding_buffers, run_guarded
from tests.fuzz import array_kernels, loop_nests
from tests.fuzz.fusion import trace_with_derivatives
from tests.fuzz.programs import Livegrad, Program, random_program
from tests.fuzz.reference import Reference, must_fail
from tests.fuzz.small_thresholds import THRESHOLDS, Threshold, shrunk

SHORT = 4
SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 17, 33, 66)


def run_one(seed: int) -> Mapping[str, int]:
    """Runs one program with some thresholds shrunk; counts which."""
    random = np.random.default_rng(seed)
    exact = seed % 4 == 0
    among = [threshold for threshold in THRESHOLDS if threshold.keeps_bits or not exact]
    share = random.choice([0.05, 0.2, 0.6])
    chosen = {
        threshold: threshold.values[int(random.integers(len(threshold.values)))]
        for threshold in among
        if random.random() < (max(share, 0.4) if exact else share)
    }
    try:
        counts = dict(_compare(seed, exact, chosen))
    except Exception as error:
        error.add_note(f"seed {seed} with {', '.join(f'{threshold} = {own}' for threshold, own in chosen.items())}")
        raise
    return {**counts, **{f"shrunk {threshold}": 1 for threshold in chosen}}


def _compare(seed: int, exact: bool, chosen: Mapping[Threshold, Any]) -> Mapping[str, int]:
    if seed % 4 == 3:
        with shrunk(chosen), fresh_session():
            set_default_cache(ObjectCache(CacheSettings(None)))
            return (array_kernels if seed % 8 == 3 else loop_nests).run_one(seed)
    program = random_program(seed, SIZES, (3, 7), fusing=True)
    try:
        if seed % 4 == 2:
            return {**program.counts, **_compare_eager(program, seed, chosen)}
        return {**program.counts, **_compare_compiled(program, seed, exact, chosen)}
    except Exception as error:
        error.add_note(str(program))
        raise


def _compare_compiled(program: Program, seed: int, exact: bool, chosen: Mapping[Threshold, Any]) -> dict[str, int]:
    """Compiled as one function, in memory that ends at unmapped pages."""
    function, arguments = trace_with_derivatives(program, seed)
    plain: Any = None
    try:
        reference = Reference(function, arguments, program.float_type)
        if exact:
            with fresh_session():
                plain = _as_tuple(run_function(function, *arguments))
    except KernelCheckError:
        with shrunk(chosen), guarding_buffers():
            return must_fail(lambda: run_guarded(function, *arguments))
    steady = True
    with shrunk(chosen), guarding_buffers():
        for run in range(2):
            found = _as_tuple(run_guarded(function, *arguments))
            steady &= reference.agrees(found, f"run {run}")
            for number, own in enumerate(found if exact else ()):
                other = np.asarray(plain[number])
                same = np.asarray(own).tobytes() == other.tobytes()
                assert same or _same_but_nan_bits(own, other), f"result {number} has other bits: {own}, not {other}"
    return {"compiled": 1, "magnifies rounding": int(not steady)}


def _compare_eager(program: Program, seed: int, chosen: Mapping[Threshold, Any]) -> dict[str, int]:
    """Run line by line, some of the values on the way read, as people run programs."""
    function, arguments = trace_with_derivatives(program, 1 if seed % 3 == 1 else 0)
    try:
        reference = Reference(function, arguments, program.float_type)
    except KernelCheckError:
        return {"fails a check": 1}
    with shrunk(chosen), fresh_session():
        set_default_cache(ObjectCache(CacheSettings(None)))
        traced = lg.ir.compile(function)
        steady = reference.agrees(_as_tuple(traced(*arguments)), "compiled")
        if seed % 3 != 1:
            for run in range(2):
                values = program.function(Livegrad())(*[lg.asarray(a) for a in program.arguments])
                for number, value in enumerate(values):
                    own, other = np.asarray(value), reference.expected[number]
                    assert own.shape == other.shape, f"eager, run {run}, result {number}"
                steady &= reference.agrees([*values, *reference.expected[len(values) :]], f"eager, run {run}")
    return {"eager": 1, "magnifies rounding": int(not steady)}


def _as_tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def _same_but_nan_bits(own: Any, other: Any) -> bool:
    return bool(np.array_equal(own, other, equal_nan=np.asarray(other).dtype.kind in "fc"))
