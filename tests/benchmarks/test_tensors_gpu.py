"""The suite of tensors on a GPU measures what it says: on the CPU, at a small size, all ports give the same values."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from benchmarks import page, report
from benchmarks.__main__ import SUITES, choose, parse_arguments
from benchmarks.contenders import Unavailable
from benchmarks.harness import Benchmark, Effort, Outcome, Result
from benchmarks.problems import Problem
from benchmarks.requirements import BestPeer, MeanAtLeast, RatioAtMost, ratio_interval, requirements_of
from benchmarks.tensors_gpu import measure
from benchmarks.tensors_gpu.catalogue import MODELS, OPERATIONS, PROGRAMS, ROWS, TEST_ROWS
from benchmarks.tensors_gpu.contender import Session
from benchmarks.tensors_gpu.digest import agree, digest, is_finite, reasons_for_wrong
from benchmarks.tensors_gpu.livegrad_library import Livegrad
from benchmarks.tensors_gpu.program import leaves
from benchmarks.tensors_gpu.rows import rows
from benchmarks.worker import PYTHON, Process

ENVIRONMENT = {
    "TORCH_COMPILE_DISABLE": "1",  # compiling is not what is tested here, and takes a minute
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "JAX_PLATFORMS": "cpu",
}


def loaded_by(peer: str) -> dict:
    """The digests of all programs by one peer, or the reason why there is none."""
    process = Process([PYTHON, "-m", "benchmarks.tensors_gpu.contender", peer, "cpu"], ENVIRONMENT)
    digests = {}
    try:
        for row in TEST_ROWS:
            try:
                digests[row] = process.ask({"load": row})["digest"]
            except Unavailable as reason:
                digests[row] = str(reason)
    finally:
        process.close()
    return digests


@pytest.mark.skipif(not PYTHON.exists(), reason="JAX and PyTorch are not installed: ./bench --peers")
def test_jax_and_torch_give_the_values_of_livegrad():
    with ThreadPoolExecutor(2) as pool:
        peers = dict(zip(("jax", "torch"), pool.map(loaded_by, ("jax", "torch")), strict=True))
    session = Session(Livegrad("cpu"))
    differing = []
    for row, program in TEST_ROWS.items():
        own = session.load(row)["digest"]
        for peer, digests in peers.items():
            if isinstance(digests[row], str) or not agree(program, own, digests[row]):
                differing.append((row, peer, digests[row] if isinstance(digests[row], str) else "differs"))
    assert not differing


@pytest.mark.parametrize("row", TEST_ROWS)
def test_livegrad_runs_every_program_and_a_wrong_result_is_noticed(row):
    program, session = TEST_ROWS[row], Session(Livegrad("cpu"))
    own = session.load(row)["digest"]
    assert is_finite(own)
    assert agree(program, own, own)
    wrong = [part | {"probe": [1.1 * value + 0.1 * part["scale"] for value in part["probe"]]} for part in own]
    assert not agree(program, own, wrong)


def test_every_row_of_the_issue_is_there():
    """The rows that the table of the issue names, and the models at three sizes each."""
    named = (
        "transformer_block", "attention_by_hand", "attention_by_hand_gradient", "conv", "fft", "scan", "scan_gradient",
        "cumulative_sum", "sort", "transposed_sum", "softmax", "layer_norm", "gather", "sum_of_squares", "cholesky",
        "normal_numbers", "nbody_gradient", "mlp_gradient",
    )  # fmt: skip
    assert {program.name for program in OPERATIONS} >= set(named)
    models = (
        "resnet_block", "gpt2", "unet_block", "diffusion", "lstm", "gaussian_process", "fno", "pointnet", "ray_marcher",
        "gray_scott", "nbody", "kmeans", "embedding", "adam", "small_solves", "monte_carlo",
    )  # fmt: skip
    assert {program.name for program in MODELS} == set(models)
    assert all(list(program.sizes) == ["small", "medium", "large"] for program in MODELS)
    assert all(list(program.sizes) == ["full"] for program in OPERATIONS)
    assert [row.name for row in rows(quick=False)] == list(ROWS)
    assert [row.name for row in rows(quick=True)] == list(TEST_ROWS)


def test_rows_have_names_and_titles_of_their_own():
    others = {row.name for name, suite in SUITES.items() if name != "tensors-gpu" for row in suite(False)}
    assert not others & set(ROWS)
    titles = [row.title for row in rows(quick=False)]
    assert len(set(titles)) == len(titles)
    assert not any("{" in title for title in titles)
    assert ROWS["gpu_conv_full"].title_of("gpu_conv_full") == "convolution 3 × 3 of 32 × 64 × 56 × 56"


def test_every_row_must_reach_the_best_peer_in_each_figure():
    for row, program in ROWS.items():
        noise = program.one_library
        wanted = [BestPeer(row, 1.0, "median", noise), BestPeer(row, 1.0, "queued", noise), BestPeer(row, 3.0, "first")]
        wanted += [RatioAtMost(row, 1.2, "torch", "peak")] if program.name == "gpt2" else []
        assert requirements_of(row) == wanted


# --- judging ---------------------------------------------------------------------------------------------------------


def outcome(row: str, **results: Result) -> Outcome:
    return Outcome(Benchmark(row, row, Problem(row, 4), tuple(results)), results)


def timed(seconds: float, queued: float, first: float, peak: int | None = None) -> Result:
    return Result([seconds] * 3, first, queued=[queued] * 3, queued_calls=20, peak_bytes=peak)


def test_the_best_peer_is_found_for_each_figure_and_a_missing_one_does_not_count():
    row = outcome("gpu_fft_full", livegrad=timed(1.0, 2.0, 3.0), jax=timed(2.0, 1.0, 30.0), torch=timed(3.0, 8.0, 6.0))
    judged = [report.verdict_of(requirement, row) for requirement in requirements_of("gpu_fft_full")]
    assert judged == [(2.0, True), (0.5, False), (2.0, False)]
    alone = outcome("gpu_fft_full", livegrad=timed(1.0, 2.0, 3.0), jax=timed(2.0, 4.0, 30.0), torch=Result(reason="no"))
    judged = [report.verdict_of(requirement, alone) for requirement in requirements_of("gpu_fft_full")]
    assert judged == [(2.0, True), (2.0, True), (10.0, True)]
    assert report.missed([outcome("gpu_fft_full", livegrad=timed(1.0, 2.0, 3.0), jax=Result(reason="no"))])


def test_where_all_call_one_library_it_suffices_that_the_interval_reaches_one():
    noisy = {"livegrad": [1.0, 1.02, 1.01, 0.98], "jax": [1.0, 0.99, 1.03, 0.97]}
    assert ratio_interval([2.0] * 4, [1.0] * 4) == (2.0, 2.0)
    plain, lenient = BestPeer("row", 1.0), BestPeer("row", 1.0, up_to_noise=True)
    slower = {"livegrad": [1.2] * 4, "jax": [1.0] * 4}
    verdicts = [plain.judge(noisy), lenient.judge(noisy), lenient.judge(slower)]
    assert [verdict and verdict[1] for verdict in verdicts] == [False, True, False]


def test_suites_are_judged_in_both_kinds_of_calls():
    names = {"livegrad": timed(1.0, 4.0, 1.0), "jax": timed(2.0, 2.0, 9.0)}
    lines = report.suite_lines("tensors-gpu", [outcome("gpu_fft_full", **names)])
    assert lines[0].endswith(f"{MeanAtLeast(1.3)}: met (2.00 ×)")
    assert lines[1].endswith("back to back: MISSED (0.50 ×)")


def test_a_result_that_no_other_contender_has_does_not_count():
    program, right = PROGRAMS["softmax"], digest([np.linspace(0.0, 1.0, 50)], is_random=False)
    wrong = digest([np.linspace(0.0, 1.1, 50)], is_random=False)
    assert reasons_for_wrong(program, {"livegrad": wrong, "jax": right, "torch": right}) == {
        "livegrad": "its result differs from those of jax and torch"
    }
    assert set(reasons_for_wrong(program, {"livegrad": wrong, "jax": right})) == {"livegrad", "jax"}
    assert reasons_for_wrong(program, {"livegrad": right}) == {}
    infinite = digest([np.full(50, np.inf)], is_random=False)
    assert reasons_for_wrong(program, {"livegrad": infinite, "jax": infinite}) == dict.fromkeys(
        ("livegrad", "jax"), "its result is not finite"
    )


def test_digests_tell_complex_and_random_results_apart():
    generator = np.random.default_rng(0)
    normal, other = (generator.standard_normal(100_000) for _ in range(2))
    random, transform = PROGRAMS["normal_numbers"], PROGRAMS["fft"]
    assert agree(random, digest([normal], True), digest([other], True))
    assert not agree(random, digest([normal], True), digest([generator.random(100_000)], True))
    assert not agree(transform, digest([normal + 1j * other], False), digest([normal - 1j * other], False))


def test_leaves_of_trees_are_in_the_order_of_their_keys():
    assert leaves({"b": [1, (2,)], "a": 3}) == [3, 1, 2]


# --- measuring -------------------------------------------------------------------------------------------------------

OPTIONS = measure.Options("cpu", ("livegrad",), Effort(rounds=2, seconds=0.1), lanes=2)


def measured(names: list[str], options: measure.Options = OPTIONS) -> dict[str, Outcome]:
    outcomes: dict[str, Outcome] = {}
    chosen = [row for row in rows(quick=True) if row.name in names]
    measure.measure_rows(chosen, options, lambda outcome, versions: outcomes.update({outcome.benchmark.name: outcome}))
    assert list(outcomes) == [row.name for row in chosen]
    return outcomes


def test_a_process_is_measured_in_both_kinds_of_calls():
    outcomes = measured(["gpu_softmax_test", "gpu_adam_test"])
    for found in outcomes.values():
        result = found.results["livegrad"]
        assert (result.reason, len(result.samples), len(result.queued)) == (None, 2, 2)
        assert 1 <= result.queued_calls <= measure.QUEUED
        assert result.first_seconds


def test_a_contender_that_fails_or_ends_has_a_reason_and_is_started_anew():
    lane = measure.Lane(OPTIONS)
    try:
        assert lane.start("livegrad") is None
        assert str(lane.load("livegrad", "gpu_nothing_test")).startswith("KeyError: 'gpu_nothing_test'")
        assert lane.start("livegrad") is None
        lane.contenders["livegrad"].process.process.kill()
        assert str(lane.load("livegrad", "gpu_softmax_test")).startswith("its process ended: ")
        assert lane.start("livegrad") is None
        assert lane.load("livegrad", "gpu_softmax_test") is None
    finally:
        for name in list(lane.contenders):
            lane.close(name)


def test_a_contender_that_is_absent_or_too_slow_does_not_end_the_run(monkeypatch):
    monkeypatch.setattr(measure, "PYTHON", measure.PYTHON.with_name("absent"))
    options = measure.Options("cpu", ("livegrad", "jax"), OPTIONS.effort, 1, slowest=0.0)
    found = measured(["gpu_softmax_test"], options)["gpu_softmax_test"].results
    assert found["jax"].reason == "not installed; run ./bench --peers"
    assert (len(found["livegrad"].samples), found["livegrad"].queued) == (1, [])
    assert found["livegrad"].note == "one call takes more than 0 s"


def test_after_the_limit_no_row_is_started():
    options = measure.Options("cpu", ("livegrad",), OPTIONS.effort, 1, limit=-1.0)
    found = measured(["gpu_softmax_test"], options)["gpu_softmax_test"].results
    assert found["livegrad"].reason == "no time was left"


# --- recording -------------------------------------------------------------------------------------------------------


def test_rows_are_chosen_by_patterns():
    assert [row.name for row in choose(["tensors-gpu"], False, "gpu_gpt2_*,*_softmax_full")] == [
        "gpu_softmax_full", "gpu_gpt2_small", "gpu_gpt2_medium", "gpu_gpt2_large",
    ]  # fmt: skip
    with pytest.raises(SystemExit, match="no row is called gpu_nothing"):
        choose(["tensors-gpu"], False, "gpu_nothing")
    assert parse_arguments(["tensors-gpu", "--seconds", "2"]).seconds == 2.0


def test_the_record_and_the_page_have_all_figures(tmp_path):
    livegrad, jax = timed(0.001, 0.0005, 0.25, 2_000_000), timed(0.002, 0.0004, 1.0, 5_000_000)
    row = outcome("gpu_fft_full", livegrad=livegrad, jax=jax, torch=Result(reason="its result is not finite"))
    recorded = report.outcome_record(row)
    assert recorded["seconds"]["livegrad"]["queued"] == {"median": 0.0005, "calls": 20, "samples": [0.0005] * 3}
    assert (recorded["seconds"]["livegrad"]["first"], recorded["seconds"]["jax"]["peak_bytes"]) == (0.25, 5_000_000)
    assert recorded["intervals"] == {"median": [2.0, 2.0], "queued": [0.8, 0.8]}
    machine = {"processor": "P", "architecture": "a", "threads": 2, "system": "S", "python": "3"}
    record = {"date": "2026-01-02", "suite": "tensors-gpu", "title": "Tensors on a GPU"}
    record |= {"machine": machine | {"packages": {}, "peers": {}}, "benchmarks": {"gpu_fft_full": recorded}}
    (tmp_path / "2026-01-02T000000-tensors-gpu.json").write_text(json.dumps(record), encoding="utf-8")
    text = page.page(tmp_path)
    assert "## Tensors on a GPU\n\n`./bench tensors-gpu --json` on 2026-01-02" in text
    line = next(line for line in text.splitlines() if line.startswith("| `gpu_fft_full`"))
    assert line.split(" | ")[1:4] == [
        "1 ms / 500 µs / 250 ms / 2 MB", "jax 2 ms / 400 µs / 1 s / 5 MB, torch: its result is not finite",
        "2.00 / 0.80 / 4.00",
    ]  # fmt: skip
