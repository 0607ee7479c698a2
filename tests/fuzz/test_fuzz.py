"""The short form of every fuzzer: its first seeds, in a process of its own, so that a crash names its seed."""

import importlib
import itertools
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import livegrad as lg
from livegrad.runtime.cpu.native.matmul import _best_of_sizes
from tests.fuzz.fuzzers import ROOT, Fuzzer, find_fuzzers
from tests.fuzz.pool import Outcome, Pool
from tests.fuzz.small_thresholds import THRESHOLDS, Threshold, shrunk


@pytest.mark.parametrize("fuzzer", find_fuzzers().values(), ids=lambda fuzzer: fuzzer.name)
def test_random_cases_agree_with_the_oracle(fuzzer: Fuzzer) -> None:
    if fuzzer.interpreter(sys.executable) is None:
        pytest.skip(f"needs {', '.join(fuzzer.missing)}; ./bench --peers installs them")
    outcome = Pool(fuzzer, {}, jobs=1, limit=120.0).run(range(fuzzer.short), 1e9, 1, lambda outcome: None)
    assert not outcome.failures, "\n".join(f"seed {seed}: {text}" for seed, text in outcome.failures.items())
    assert outcome.seeds == fuzzer.short


@pytest.mark.parametrize("seed", [700727, 7190056])
def test_a_result_that_its_precision_cannot_have_is_counted_as_ill_conditioned(seed: int) -> None:
    """The determinant of matrices with a condition number of 8.6e15, which JAX's own rounding decides; the derivative
    of a tanh that is 1.0 in float32.
    """
    fuzzer = find_fuzzers()["tensors"]
    if fuzzer.interpreter(sys.executable) is None:
        pytest.skip(f"needs {', '.join(fuzzer.missing)}; ./bench --peers installs them")
    outcome = Pool(fuzzer, {}, jobs=1).run([seed], 1e9, 1, lambda outcome: None)
    assert not outcome.failures, outcome.failures
    assert outcome.counts["ill-conditioned results"] > 0


def test_ctrl_c_ends_a_long_run_and_what_was_counted_is_kept() -> None:
    main = threading.main_thread().ident
    assert main is not None
    # Shells start programs in the background with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def report(outcome: Outcome) -> None:
        if outcome.seeds == 2:
            signal.pthread_kill(main, signal.SIGINT)

    try:
        outcome = Pool(find_fuzzers()["value_passes"], {}, jobs=1).run(itertools.count(), 1e9, 1, report)
    finally:
        signal.signal(signal.SIGINT, before)
    assert 2 <= outcome.seeds <= 10
    assert not outcome.failures


def test_memory_that_nothing_has_written_is_poisoned() -> None:
    code = (
        "from tests.fuzz.poisoned_memory import poison_memory; poison_memory()\n"
        "from livegrad.ir.types import f32\n"
        "from livegrad.runtime.cpu.memory_pool import plan_memory, result_maker\n"
        "assert all((plan_memory(size) == 255).all() for size in (16, 1 << 19))\n"
        "assert all((result_maker(f32, (n,), 4 * n)() != 0.0).all() for n in (3, 1 << 18))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.parametrize("threshold", THRESHOLDS, ids=lambda threshold: f"{threshold.module}.{threshold.name}")
def test_every_threshold_that_is_shrunk_exists(threshold: Threshold) -> None:
    assert hasattr(importlib.import_module(threshold.module), threshold.name)


def test_a_product_is_cut_into_items_by_the_thresholds_of_now() -> None:
    """How a product is computed is remembered by its sizes, which do not contain the thresholds."""
    x = lg.ones((24, 40))
    np.testing.assert_array_equal(x @ x.T, np.full((24, 24), 40.0))
    assert _best_of_sizes.cache_info().currsize > 0
    with shrunk({}):
        assert _best_of_sizes.cache_info().currsize == 0
