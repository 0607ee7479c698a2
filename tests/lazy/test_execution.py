"""Lazy execution, observed by its counts: nothing is computed twice, and no unreachable value is kept."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import livegrad as lg
from livegrad.lazy import eviction, execution, lazy_values
from livegrad.runtime.cpu.kernel_code import kernels_in_memory
from tests.node_counts import settled_node_count


def work_of(action) -> eviction.Stats:
    before = lg.stats()
    action()
    after = lg.stats()
    names = ("executions", "programs_compiled", "kernels_run", "library_calls", "nodes_computed", "cache_hits")
    return eviction.Stats(**{name: getattr(after, name) - getattr(before, name) for name in names})


def data(*shape: int, seed: int = 0) -> lg.Tensor:
    return lg.asarray(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def test_building_runs_nothing():
    assert work_of(lambda: data(3) + 1.0) == eviction.Stats()


def test_a_second_execution_computes_nothing():
    y = lg.exp(data(8)) + 1.0
    assert work_of(y.execute).kernels_run == 1
    assert work_of(y.execute) == eviction.Stats(cache_hits=1)
    assert work_of(y.numpy) == eviction.Stats()


def test_cached_values_are_returned_without_a_claim(monkeypatch):
    known, result = lg.exp(data(8)).execute(), lg.jit(lambda x: x * 2.0)(data(8))

    def refuse(work):
        raise AssertionError("claimed")

    monkeypatch.setattr(execution, "_claim_work", refuse)
    assert lg.execute(known, result) == (known, result)
    with pytest.raises(AssertionError, match="claimed"):
        lg.exp(data(1 << 15, seed=1)).execute()  # large enough to avoid the fast path for small graphs


def test_a_shared_subgraph_is_computed_once():
    shared = lg.exp(data(8, seed=1))
    first, second = lg.sum(shared), lg.max(shared)
    first.execute()
    work = work_of(second.execute)
    assert work.cache_hits == 1
    assert work.nodes_computed == 1


def test_unheld_values_are_fused_away():
    y = lg.exp(data(8, seed=2) * 2.0) + 1.0
    y.execute()
    kept = [node.is_computed for node in y.graph.nodes if node.op in ("mul", "exp")]
    assert kept == [False, False]


def test_held_intermediate_values_are_cached():
    middle = lg.exp(data(8, seed=3))
    (middle + 1.0).execute()
    assert middle.is_computed


def test_graphs_of_one_structure_share_a_program_for_any_numbers():
    x = data(16, seed=4)
    (x - 0.123 * x).execute()
    work = work_of(lambda: [(x - rate * x).execute() for rate in (0.1, 0.01, 0.7)])
    assert work.programs_compiled == 0
    assert work.executions == 3


def test_pure_layout_changes_compile_nothing():
    x = data(4, 6)
    rows = work_of(lambda: [x[index].execute() for index in range(4)])
    assert rows.programs_compiled == 0
    assert np.array_equal(x[2, ::2].numpy(), x.numpy()[2, ::2])


def test_a_new_batch_size_compiles_no_new_code():
    def run(size: int) -> None:
        x = data(size, 8, seed=size)
        (lg.sum(lg.tanh(x) * 2.0, axis=1) + 1.0).execute()

    run(5)
    before = kernels_in_memory()
    run(9)
    run(33)
    assert kernels_in_memory() == before


def test_fill_on_a_leaf_gives_fresh_results_below_it():
    leaf = lg.asarray([1.0, 2.0])
    below = lg.exp(leaf * 0.0) * leaf
    assert below.tolist() == [1.0, 2.0]
    leaf.fill(5.0)
    assert below.tolist() == [5.0, 5.0]


def test_other_results_survive_a_fill():
    leaf, other = lg.asarray([1.0]), lg.asarray([2.0])
    untouched = lg.exp(other)
    untouched.execute()
    leaf.fill(3.0)
    assert work_of(untouched.execute).kernels_run == 0


def test_external_memory_is_read_each_time():
    memory = np.ones(3, np.float32)
    doubled = lg.asarray(memory, copy=False) * 2.0
    assert doubled.tolist() == [2.0] * 3
    memory[:] = 7.0
    assert doubled.tolist() == [14.0] * 3


def test_asarray_copies_so_later_writes_do_not_show():
    memory = np.ones(3, np.float32)
    x = lg.asarray(memory)
    memory[:] = 7.0
    assert x.tolist() == [1.0] * 3


@pytest.mark.usefixtures("own_session")
def test_a_loop_that_updates_its_tensors_forgets_its_past():
    w, nodes = data(64), 0
    for step in range(40):
        w = w - 0.1 * (w * w)
        w.execute()
        if step == 20:
            nodes = settled_node_count()
    assert settled_node_count() < nodes + 20
    assert len(w.graph) < 100


def test_a_settled_tensor_raises_when_its_ancestor_was_refilled():
    leaf = lg.asarray([1.0, 2.0])
    w = leaf
    for _ in range(lazy_values.MAX_GENERATIONS + 2):
        w = w + leaf
        w.execute()
    leaf.fill(9.0)
    with pytest.raises(lg.UsageError, match="can no longer be recomputed"):
        w.numpy()


def test_the_budget_evicts_the_cheapest_values_to_recompute():
    before = lg.stats().bytes_budget
    x = data(1000, seed=5)
    cheap, dear = x + 1.0, lg.sin(lg.exp(lg.tanh(x)))
    lg.execute(cheap, dear)
    gc.collect()
    try:
        while cheap.is_computed:
            lg.set_cache_budget(lg.stats().bytes_cached - 1)
        assert dear.is_computed
    finally:
        lg.set_cache_budget(before)
    assert np.array_equal(cheap.numpy(), x.numpy() + 1.0)


def test_dropping_a_tensor_gives_its_bytes_back():
    gc.collect()
    before = lg.stats().bytes_cached
    y = (data(1000, seed=6) + 1.0).execute()
    assert lg.stats().bytes_cached == before + 4000
    del y
    gc.collect()
    assert lg.stats().bytes_cached == before


def test_a_long_chain_runs_in_pieces_that_share_a_program():
    x = data(1030, seed=7)  # too large for ops without nodes
    y = x
    for _ in range(20_000):
        y = y + x
    work = work_of(y.execute)
    assert work.kernels_run == 10
    assert work.programs_compiled <= 2
    np.testing.assert_allclose(y.numpy(), x.numpy() * 20_001, rtol=1e-2)


def test_many_threads_on_one_graph_compute_each_node_once():
    x = data(32, seed=8)
    shared = lg.exp(x)
    outputs = [shared * float(index) for index in range(1, 9)]
    found: dict[int, np.ndarray] = {}
    start = threading.Barrier(len(outputs))

    def read(index: int) -> None:
        start.wait()
        found[index] = (outputs[index] + 1.0).numpy()

    threads = [threading.Thread(target=read, args=(index,)) for index in range(len(outputs))]
    before = lg.stats()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(outputs)
    for index, value in found.items():
        np.testing.assert_allclose(value, np.exp(x.numpy()) * (index + 1) + 1.0, rtol=1e-5)
    computed = lg.stats().nodes_computed - before.nodes_computed
    assert computed <= 8 * 6 + 1  # a few nodes per thread, and exp once in total


def test_threads_extend_and_execute_shared_graphs_without_harm():
    x = data(64, seed=9)
    base = [x * float(index) for index in range(4)]
    errors: list[BaseException] = []

    def play(seed: int) -> None:
        generator = np.random.default_rng(seed)
        try:
            y, expected = base[seed % 4], x.numpy() * np.float32(seed % 4)
            for _ in range(60):
                choice = int(generator.integers(4))
                y, expected = y + base[choice], expected + x.numpy() * np.float32(choice)
                if generator.random() < 0.4:
                    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-4, atol=1e-4)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=play, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_an_error_leaves_nothing_half_done():
    numbers = lg.asarray([4, 2])
    bad = numbers // lg.asarray([1, 0])
    with pytest.raises(lg.KernelCheckError, match=r"test_execution\.py"):
        bad.execute()
    assert not bad.is_computed
    with pytest.raises(lg.KernelCheckError):
        (bad + 1).numpy()


def test_progress_is_reported_and_an_interrupt_leaves_the_cache_intact():
    x = data(1030, seed=10)
    y = x
    for _ in range(6_000):
        y = y + x
    seen: list[tuple[int, int]] = []
    lg.execute(y, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]
    assert len(seen) > 1

    z = x
    for _ in range(6_000):
        z = z - x

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lg.execute(z, progress=interrupt)
    np.testing.assert_allclose(z.numpy(), x.numpy() * -5_999, rtol=1e-2)


def test_devices_mix_and_copies_are_counted():
    x, y = data(4, seed=11), data(4, seed=12)
    before = lg.stats().copies_between_devices
    result = x.to("reference") * 2.0 + y
    assert result.device == "reference"
    np.testing.assert_allclose(result.numpy(), x.numpy() * 2.0 + y.numpy())
    assert lg.stats().copies_between_devices == before + 2
    back = lg.exp(result.to("cpu"))
    assert back.device == "cpu"
    np.testing.assert_allclose(back.numpy(), np.exp(result.numpy()), rtol=1e-6)
    gradient = lg.grad(lambda x: lg.sum((x.to("reference") * 3.0).to("cpu") * x))(x)
    np.testing.assert_allclose(gradient.numpy(), 6.0 * x.numpy(), rtol=1e-6)
    with pytest.raises(lg.UsageError, match="no device 'moon'"):
        x.to("moon")


def test_debug_nans_names_the_first_bad_operation():
    x = lg.asarray([1.0, -1.0])
    with lg.debug_nans(), pytest.raises(lg.KernelCheckError, match=r"`log` produced the first NaN, at index \(1,\)"):
        (lg.log(x) * 2.0 + 1.0).execute()
    with lg.debug_nans(infinities=True), pytest.raises(lg.KernelCheckError, match="`div` produced the first infinity"):
        (x / (x + 1.0)).execute()
    with lg.debug_nans(), pytest.raises(lg.KernelCheckError, match="this data contains the first NaN"):
        (lg.asarray([float("nan")]) + 1.0).execute()
