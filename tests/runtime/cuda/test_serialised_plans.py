"""Serialised plans for a GPU, on disk and back, and how libraries see operands: checked where there is no GPU."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from livegrad import ops
from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.compiler import compile_plan
from livegrad.ir.function import trace
from livegrad.ir.leaves import parameter
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, f32, f64, i32
from livegrad.runtime.cuda.libraries.cublas import Matrices, _matrices
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
def test_a_serialised_plan_comes_back_from_text_as_it_was(own_cache: None) -> None:
    serialised = serialise_plan(compile_plan(several_steps(), CUDA), "sm_90")
    data = encode(serialised)
    assert data is not None
    found = decode(data)
    assert found is not None
    assert [site.message for kernel in found.kernels for site in kernel.sites] == ["integer division by zero"]
    for one, other in zip(found.kernels, serialised.kernels, strict=True):
        assert (one.slots, one.grid, one.code, one.scratch) == (other.slots, other.grid, other.code, other.scratch)
    assert found.arguments == serialised.arguments
    assert [s.dependencies for s in found.segments] == [s.dependencies for s in serialised.segments]  # type: ignore[union-attr]


@needs_nvrtc
def test_a_serialised_plan_whose_code_is_gone_is_none(own_cache: None, tmp_path: Path) -> None:
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
def test_data_that_is_no_serialised_plan_is_none(data: bytes) -> None:
    assert decode(data) is None


@needs_nvrtc
def test_steps_of_the_host_stand_between_graphs_and_are_not_kept_on_disk(own_cache: None) -> None:
    function = trace(lambda a: ops.sin(ops.det(ops.cos(a))), Tensor(f64, (4, 3, 3)))
    serialised = serialise_plan(compile_plan(function, CUDA), "sm_90")
    assert [isinstance(segment, SerialisedHostStep) for segment in serialised.segments] == [False, True, False]
    assert encode(serialised) is None


def test_serialised_plans_of_other_devices_and_of_other_rounding_are_others() -> None:
    keys = {serialised_plan_key(b"f", {"n": 3}, a, ieee) for a in ("sm_90", "sm_100") for ieee in (False, True)}
    assert len(keys) == 4


def seen(node: Node, array: np.ndarray[Any, Any], batch: tuple[int, ...]) -> np.ndarray[Any, Any] | None:
    """What cuBLAS would read of an array's memory as the operand `node`."""
    found = _matrices(node, batch)
    if found is None:
        return None
    assert isinstance(found, Matrices)
    assert isinstance(node.type, Tensor)
    rows, columns = node.type.shape[-2:]
    count = int(np.prod(batch))
    result = np.empty((count, rows, columns))  # type: ignore[call-overload]
    for index in np.ndindex(*result.shape):
        number, row, column = index
        inner = column * found.lead + row if found.transposed else row * found.lead + column
        result[index] = array.ravel()[number * found.step + inner]
    return result


@pytest.mark.parametrize(
    ("shape", "axes", "batch"),
    [
        ((5, 7), None, ()),
        ((5, 7), (1, 0), ()),
        ((1, 7), (1, 0), ()),
        ((4, 5, 7), None, (4,)),
        ((4, 5, 7), (0, 2, 1), (4,)),
        ((5, 7), (1, 0), (4,)),
        ((2, 3, 5, 7), (0, 1, 3, 2), (2, 3)),
        ((5, 4, 7), (1, 0, 2), (4,)),  # rows that are not neighbours
        ((1, 5, 7), None, (4,)),
    ],
)
def test_a_library_sees_an_operand_as_it_is(
    shape: tuple[int, ...], axes: tuple[int, ...] | None, batch: tuple[int, ...]
) -> None:
    array = np.random.default_rng(0).normal(size=shape)
    plain = parameter(0, Tensor(f64, shape))
    node = plain if axes is None else ops.permute(plain, axes=axes)
    found = seen(node, array, batch)
    wanted = array if axes is None else np.transpose(array, axes)
    assert found is not None
    np.testing.assert_array_equal(found, np.broadcast_to(wanted, (*batch, *wanted.shape[-2:])).reshape(found.shape))


def test_operands_that_no_single_step_leads_through_are_left_to_the_host() -> None:
    assert _matrices(parameter(0, Tensor(f64, (3, 5, 7))), (2, 3)) is None, "one of three for each of two"
    swapped = ops.permute(parameter(0, Tensor(f64, (3, 2, 5, 7))), axes=(1, 0, 2, 3))
    assert _matrices(swapped, (2, 3)) is None
    assert _matrices(ops.permute(parameter(0, Tensor(f64, (7, 5, 4))), axes=(1, 2, 0)), (5,)) is not None


def test_a_library_that_is_not_here_is_none() -> None:
    assert shared_library("nothing", ("libnothing_at_all.so.9",)) is None
