"""Compiled functions on disk: what a second process finds, what it never uses, and what it does without a cache."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.ir.digest import function_digest
from livegrad.ir.line_sites import mark_places
from livegrad.ir.persistent_array import Entries
from livegrad.runtime.cpu import kernel_code
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import CpuFunction, run_function
from livegrad.runtime.cpu.kernel_code import forget_kernels
from livegrad.runtime.cpu.native import llvm_jit
from livegrad.runtime.cpu.serialised_plan import decode, encode, serialised_plan_key
from livegrad.runtime.cpu.tier_up import background_compiler
from livegrad.runtime.object_cache import CacheSettings, ObjectCache, default_cache, set_default_cache
from livegrad.runtime.reference import evaluate
from tests.runtime.subprocesses import run_python, start_python

N = lg.ir.Dimension.symbol("n")

PROGRAM = """
from livegrad.runtime.cpu.tier_up import background_compiler
from livegrad.runtime.cpu.native import llvm_jit
from livegrad.runtime.object_cache import default_cache
import json
size, factor = int(os.environ.get("SIZE", "1000")), float(os.environ.get("FACTOR", "2"))
n = lg.ir.Dimension.symbol("n")
row = lg.ir.types.Tensor(lg.f32, (n,))
run = lg.ir.compile(lg.ir.trace(lambda x: ops.reduce(ops.sin(x) * factor, kind="sum", axes=(0,)), row))
x = np.linspace(0, 1, size, dtype=np.float32)
total = float(run(x))
assert abs(total - factor * np.sin(x.astype(np.float64)).sum()) < 1e-3 * size, total
background_compiler.current.wait()
stats, cache = llvm_jit.stats(), default_cache().stats()
print(json.dumps([stats.compiled, stats.loaded_from_disk, cache.stored, cache.rejected, cache.unavailable, total]))
"""


def _run(cache: Path | str, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> list[Any]:
    """[compiled, loaded, stored, rejected, unavailable, total] of a process."""
    for name, value in settings.items():
        monkeypatch.setenv(name, str(value))
    return json.loads(run_python(PROGRAM, cache))


def _files(cache: Path) -> list[Path]:
    return sorted(cache.glob("*.object"))


def test_a_second_process_compiles_nothing_and_a_changed_function_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _run(tmp_path, monkeypatch)
    again = _run(tmp_path, monkeypatch)
    assert first[0] > 0
    assert first[1] == 0
    assert (again[0], again[2]) == (0, 0), "nothing is compiled or stored the second time"
    assert again[5] == first[5]
    changed = _run(tmp_path, monkeypatch, FACTOR=3)
    assert changed[0] >= 1, "another function is compiled"
    assert changed[1] >= 1, "what both share is not"
    assert changed[5] != first[5]
    # The kernel of another size is the same; only its serialised plan is new.
    resized = _run(tmp_path, monkeypatch, SIZE=1001)
    assert resized[0] == 0
    assert resized[2] == 1


def _damaged(content: bytes, kind: int) -> bytes:
    """The content truncated, with one bit flipped, emptied, or that of another program."""
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    return (content[:middle], flipped, b"", b"\x7fELF" + bytes(2000))[kind % 4]


def test_damaged_files_are_ignored_and_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _run(tmp_path, monkeypatch)
    files = _files(tmp_path)
    assert len(files) >= 4
    for kind, file in enumerate(files):
        file.write_bytes(_damaged(file.read_bytes(), kind))
    after = _run(tmp_path, monkeypatch)
    assert (after[0], after[5]) == (first[0], first[5]), "all is compiled again"
    assert after[3] == len(files)
    assert _run(tmp_path, monkeypatch)[0] == 0, "and stored again"


def test_a_cache_that_cannot_be_used_changes_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    blocked = _run(tmp_path / "file" / "cache", monkeypatch)
    absent = _run("", monkeypatch)
    assert blocked[2] == 0
    assert blocked[4] > 0
    assert (absent[2], absent[4]) == (0, 0)
    assert blocked[5] == absent[5]
    assert (tmp_path / "file").read_text() == "in the way"


def test_two_processes_share_a_cache_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processes = [start_python(PROGRAM, tmp_path) for _ in range(3)]
    printed = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0] * 3, printed
    assert len({json.loads(out)[5] for out, _ in printed}) == 1
    assert not list(tmp_path.glob("*.partial"))
    assert _run(tmp_path, monkeypatch)[0] == 0


# --- serialised plans, in this process --------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, own_session: None) -> ObjectCache:
    own = ObjectCache(CacheSettings(tmp_path / "cache"))
    set_default_cache(own)
    return own


def _loaded(function: lg.ir.Function, sizes: dict[str, int]) -> CompiledPlan:
    """The plan of a function as a fresh process loads it."""
    digest = function_digest(function)
    assert digest is not None
    background_compiler.current.wait()
    data = default_cache().load(serialised_plan_key(digest, sizes))
    assert data is not None
    forget_kernels()
    serialised = decode(data)
    assert serialised is not None
    _, places = mark_places(function)
    plan = CompiledPlan.from_serialised(serialised, run_function, places)
    assert plan is not None
    assert plan.plan is None
    plan.source = function  # as `CpuFunction.plan` does
    return plan


def _softmax(x: lg.ir.Node) -> lg.ir.Node:
    weights = ops.exp(x - ops.spread_back(ops.reduce(x, kind="max", axes=(1,)), (30, 700), (1,)))
    return weights / ops.spread_back(ops.reduce(weights, kind="sum", axes=(1,)), (30, 700), (1,))


def _march(x: lg.ir.Node, limit: lg.ir.Node) -> lg.ir.Node:
    return ops.make_while_loop(lambda v: v < limit, lambda i, v: v * 1.5 + 0.1, x)[0]


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "softmax": (
        _softmax,
        (lg.ir.types.Tensor(lg.f32, (30, 700)),),
        (np.linspace(0, 1, 21_000, dtype=np.float32).reshape(30, 700),),
    ),
    "a scalar": (lambda x, k: (x * x, k + 1), (lg.f64, lg.i32), (3.5, 7)),
    "a split sum": (
        lambda x: ops.reduce(x * x, kind="sum", axes=(0,)),
        (lg.ir.types.Tensor(lg.f32, (200_003,)),),
        (np.linspace(0, 1, 200_003, dtype=np.float32),),
    ),
    "vectors": (
        lambda a, b: (ops.cross(a, b), ops.normalize(a)),
        (lg.ir.Vector(lg.f32, 3), lg.ir.Vector(lg.f32, 3)),
        (np.array([1, 2, 3], np.float32), np.array([4, 5, 7], np.float32)),
    ),
    "a loop": (_march, (lg.f32, lg.f32), (0.5, 100.0)),
    "the derivative of a loop": (
        lambda x: ops.bwd_diff(x, x, function=lg.ir.trace(lambda v: _march(v, lg.ir.constant(9.0, lg.f32)), lg.f32)),
        (lg.f32,),
        (0.5,),
    ),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_plan_from_disk_gives_the_same_bits(program: str, cache: ObjectCache) -> None:
    callable, types, arguments = PROGRAMS[program]
    function = lg.ir.trace(callable, *types)
    fresh = CpuFunction(function).plan({})
    before = llvm_jit.stats().compiled
    loaded = _loaded(function, {})
    assert llvm_jit.stats().compiled == before
    assert encode(loaded.serialised) == encode(fresh.serialised)
    assert loaded.serialised == decode(encode(fresh.serialised))
    for one, other in zip(fresh.run(arguments), loaded.run(arguments), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def test_a_plan_from_disk_knows_the_place_of_each_argument(cache: ObjectCache) -> None:
    types = lg.ir.types.Tensor(lg.f64, (3,)), lg.ir.types.Tape(lg.f64), lg.ir.types.Tensor(lg.f64, ())
    function = lg.ir.trace(
        lambda x, remembered, factor: x * ops.broadcast(factor, shape=(3,), axes=()) + 1.0625, *types
    )
    arguments = np.arange(3.0), Entries(), np.asarray(2.0)
    expected = CpuFunction(function).plan({}).run(arguments)
    assert np.array_equal(_loaded(function, {}).run(arguments), expected)


def test_more_kernels_than_are_kept_can_be_in_use(cache: ObjectCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_code.kernel_cache.current.compiled, "most", 1)
    monkeypatch.setattr(kernel_code.kernel_cache.current.loaded, "most", 1)

    def folds(x: lg.ir.Node) -> tuple[lg.ir.Node, ...]:
        return tuple(ops.reduce(x * 1.28125, kind=kind, axes=(axis,)) for kind in ("sum", "max") for axis in (0, 1))

    function = lg.ir.trace(folds, lg.ir.types.Tensor(lg.f64, (5, 7)))
    x = np.arange(35.0).reshape(5, 7)
    for _ in range(2):
        found = CpuFunction(function)(x)
        for one, other in zip(found, evaluate(function, x), strict=True):
            np.testing.assert_allclose(one, other)


def test_a_plan_from_disk_reports_checks_at_the_same_place(cache: ObjectCache) -> None:
    def pick(table: lg.ir.Node, index: lg.ir.Node) -> lg.ir.Node:
        return ops.lookup(table, index) + 2.71875

    function = lg.ir.trace(pick, lg.ir.types.Tensor(lg.f32, (5,)), lg.ir.types.Tensor(lg.i64, (100,)))
    indices = np.zeros(100, np.int64)
    indices[63] = 9
    said = []
    for plan in (CpuFunction(function).plan({}), _loaded(function, {})):
        with pytest.raises(lg.KernelCheckError) as raised:
            plan.run([np.arange(5, dtype=np.float32), indices])
        said.append((str(raised.value), raised.value.where and raised.value.where.file))
    assert said[0] == said[1]
    assert said[0][1] == __file__


def test_a_serialised_plan_whose_code_is_gone_is_made_anew(cache: ObjectCache) -> None:
    function = lg.ir.trace(lambda x: ops.exp(x) * 3.0625, lg.ir.types.Tensor(lg.f32, (10,)))
    values = np.ones(10, np.float32)
    expected = CpuFunction(function)(values)
    background_compiler.current.wait()
    directory = cache.settings.directory
    assert directory is not None
    digest = function_digest(function)
    assert digest is not None
    serialised = cache.path_of(serialised_plan_key(digest, {}))
    for file in directory.glob("*.object"):
        if file != serialised:
            os.unlink(file)
    forget_kernels()
    before = llvm_jit.stats().compiled
    assert np.array_equal(CpuFunction(function)(values), expected)
    assert llvm_jit.stats().compiled > before


def test_types_and_the_bits_of_constants_are_part_of_the_key(cache: ObjectCache) -> None:
    def keys(*functions: lg.ir.Function) -> set[bytes | None]:
        return {function_digest(function) for function in functions}

    zero, minus_zero = (lg.ir.trace(lambda x, c=c: x + c, lg.f32) for c in (0.0, -0.0))
    assert len(keys(zero, minus_zero)) == 2
    assert len(keys(lg.ir.trace(lambda x: x + 1, lg.i32), lg.ir.trace(lambda x: x + 1, lg.i64))) == 2
    assert len(keys(*(lg.ir.trace(lambda x: x * 1.3125, lg.f32, name="one") for _ in range(2)))) == 1


DAMAGED = [b"", b"not json", b"7", b"[]", b"[[], [], 0]", b"[[], [], 0, 7]", b"[[[0]], [], 0, [[], []]]",
           b"[[], [], 0, [[{}], []]]", b"[[], [], 0, [[7], []]]", b"\xff\xfe"]  # fmt: skip


@pytest.mark.parametrize("payload", DAMAGED, ids=repr)
def test_a_serialised_plan_that_cannot_be_read_is_made_anew(payload: bytes, cache: ObjectCache) -> None:
    function = lg.ir.trace(lambda x: x * 1.5625, lg.ir.types.Tensor(lg.f32, (10,)))
    digest = function_digest(function)
    assert digest is not None
    key = serialised_plan_key(digest, {})
    cache.store(key, payload)
    assert CpuFunction(function)(np.ones(10, np.float32)).tolist() == [1.5625] * 10
    background_compiler.current.wait()
    assert cache.load(key) not in (None, payload)


def test_a_kernel_that_does_not_compile_leaves_nothing_behind(cache: ObjectCache) -> None:
    with pytest.raises(llvm_jit.NativeCompileError):
        llvm_jit.compile_kernel("define void @kernel() { ret i32 0 }", "kernel", cache=cache)
    directory = cache.settings.directory
    assert directory is not None
    assert not directory.exists() or not list(directory.iterdir())


def test_plans_that_were_forgotten_are_made_again() -> None:
    run = CpuFunction(lg.ir.trace(lambda x: x + 4.0625, lg.ir.types.Tensor(lg.f32, (N,))))
    values = np.zeros(3, np.float32)
    before = run(values)
    run.forget_plans()
    assert np.array_equal(run(values), before)
