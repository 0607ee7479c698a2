"""Serialised plans for a GPU, on disk and back, and operand layouts of libraries. Needs no GPU."""

from pathlib import Path
from typing import Any

import pytest

from livegrad import ops
from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.compiler import compile_plan
from livegrad.ir.function import trace
from livegrad.ir.node import Function
from livegrad.ir.types import Tensor, f32, f64, i32
from livegrad.runtime.cuda.libraries.library_call import shared_library
from livegrad.runtime.cuda.nvrtc import forget_cubins, load_compiled, reason_for_no_compiler
from livegrad.runtime.cuda.serialised_device_plan import (
    SerialisedHostStep,
    decode,
    encode,
    serialise_plan,
    serialised_plan_key,
)
from livegrad.runtime.object_cache import CacheSettings, ObjectCache, set_default_cache
from livegrad.state import fresh_session

needs_nvrtc = pytest.mark.skipif(reason_for_no_compiler() is not None, reason=str(reason_for_no_compiler()))


def several_steps() -> Function:
    def function(x: Any, y: Any) -> tuple[Any, ...]:
        total = ops.reduce(x * x, kind="sum", axes=(0,))
        return ops.sin(x) - ops.broadcast(total, shape=(200_000,), axes=()), ops.floor_div(y, y)

    return trace(function, Tensor(f32, (200_000,)), Tensor(i32, (7,)))


@pytest.fixture
def own_cache(tmp_path: Path) -> Any:
    with fresh_session():
        set_default_cache(ObjectCache(CacheSettings(tmp_path)))
        yield


@needs_nvrtc
def test_a_serialised_plan_survives_encoding(own_cache: None) -> None:
    serialised = serialise_plan(compile_plan(several_steps(), CUDA), "sm_90")
    data = encode(serialised)
    assert data is not None
    actual = decode(data)
    assert actual is not None
    assert [site.message for kernel in actual.kernels for site in kernel.sites] == ["integer division by zero"]
    for one, other in zip(actual.kernels, serialised.kernels, strict=True):
        assert (one.slots, one.grid, one.code, one.scratch) == (other.slots, other.grid, other.code, other.scratch)
    assert actual.arguments == serialised.arguments
    assert [s.dependencies for s in actual.segments] == [s.dependencies for s in serialised.segments]  # type: ignore[union-attr]


@needs_nvrtc
def test_decoding_a_plan_whose_code_was_evicted_returns_none(own_cache: None, tmp_path: Path) -> None:
    serialised = serialise_plan(compile_plan(several_steps(), CUDA), "sm_90")
    data = encode(serialised)
    assert data is not None
    forget_cubins()
    assert load_compiled(serialised.kernels[0].code) is not None, "from disk"
    forget_cubins()
    for file in tmp_path.glob("*.object"):
        file.unlink()
    assert decode(data) is None


@pytest.mark.parametrize("data", [b"nonsense", b"[]", b"[[], [], 0, 7]", b"[[], [], 0, [[[[{}], []]], 1]]"], ids=repr)
def test_decoding_other_data_returns_none(data: bytes) -> None:
    assert decode(data) is None


@needs_nvrtc
def test_host_steps_separate_graphs_and_are_not_stored_on_disk(own_cache: None) -> None:
    function = trace(lambda a: ops.sin(ops.real(ops.eigvals(ops.cos(a)))), Tensor(f64, (4, 3, 3)))
    serialised = serialise_plan(compile_plan(function, CUDA), "sm_90")
    assert [isinstance(segment, SerialisedHostStep) for segment in serialised.segments] == [False, True, False]
    assert encode(serialised) is None


def test_serialised_plans_of_other_devices_or_rounding_have_other_keys() -> None:
    keys = {serialised_plan_key(b"f", {"n": 3}, a, ieee) for a in ("sm_90", "sm_100") for ieee in (False, True)}
    assert len(keys) == 4


def test_a_missing_library_is_none() -> None:
    assert shared_library("nothing", ("libnothing_at_all.so.9",)) is None
