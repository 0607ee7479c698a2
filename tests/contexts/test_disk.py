"""Results on disk: shared with other processes, under exact keys, in a directory of bounded size."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from livegrad.contexts import ContextError, ContextGraph, DiskCache, context, context_function
from livegrad.ir.types import f32

SCRIPT = """
import sys
from livegrad.contexts import ContextGraph, DiskCache
def paint(ctx, size):
    return {"pixels": [ctx.footprint] * size}
graph = ContextGraph()
graph.value("size", 2)
graph.node("paint", paint, plain="size", extract="footprint", version='1', persist=True)
program = graph.compile("paint", root="footprint", disk=DiskCache(sys.argv[1]))
with program.events() as log:
    print(program.evaluate(footprint=0.5), [event.kind for event in log if event.node == "paint"])
"""


def run(directory: Path) -> str:
    command = [sys.executable, "-c", SCRIPT, str(directory)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_another_process_finds_the_result(tmp_path: Path):
    value = "{'pixels': [0.5, 0.5]}"
    assert run(tmp_path) == f"{value} ['computed']"
    assert run(tmp_path) == f"{value} ['loaded']"


def paint(ctx: Any, size: int) -> Any:
    return np.full(size, ctx.footprint)


def painting(disk: DiskCache, size: int = 3, **options: Any) -> Any:
    graph = ContextGraph()
    graph.value("size", size)
    graph.node("paint", paint, plain="size", **{"extract": "footprint", "version": "1", "persist": True, **options})
    return graph.compile("paint", root=["footprint", "index"], disk=disk)


def kinds(program: Any, footprint: Any) -> list[str]:
    with program.events() as log:
        program.evaluate(footprint=footprint, index=0)
    return [event.kind for event in log if event.node == "paint"]


def test_keys_depend_on_needed_features_and_on_the_content_of_inputs(tmp_path: Path):
    disk = DiskCache(tmp_path)
    assert kinds(painting(disk), 1.0) == ["computed"]
    assert kinds(painting(disk), 1.0) == ["loaded"]
    assert kinds(painting(disk, version="2"), 1.0) == ["computed"]
    assert kinds(painting(disk), 1) == ["computed"]
    assert kinds(painting(disk), -0.0) == ["computed"]
    assert kinds(painting(disk), 0.0) == ["computed"]
    assert kinds(painting(disk, size=4), 1.0) == ["computed"]
    assert kinds(painting(disk, optional="index"), 1.0) == ["computed"]
    loaded = painting(disk).evaluate(footprint=1.0, index=0)
    assert loaded.dtype == np.float64
    assert loaded.tolist() == [1.0, 1.0, 1.0]


def test_the_directory_stays_below_its_limit(tmp_path: Path):
    program = painting(DiskCache(tmp_path, max_bytes=64 * 1024), size=1024)
    for value in range(40):
        program.evaluate(footprint=float(value), index=0)
        assert sum(file.stat().st_size for file in tmp_path.glob("*.object")) <= 64 * 1024


def test_only_plain_data_is_stored_on_disk(tmp_path: Path):
    graph = ContextGraph()
    graph.node("odd", lambda ctx: object(), version="1", persist=True)
    disk = DiskCache(tmp_path)
    graph.compile("odd", disk=disk).evaluate()
    assert disk.stats.stored == 0


def test_a_damaged_file_is_computed_again(tmp_path: Path):
    disk = DiskCache(tmp_path)
    kinds(painting(disk), 1.0)
    for file in tmp_path.glob("*.object"):
        content = file.read_bytes()
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert kinds(painting(disk), 1.0) == ["computed"]


def test_only_versioned_functions_reach_the_disk():
    graph = ContextGraph()
    with pytest.raises(ContextError, match="`a` cannot be stored on disk without a version"):
        graph.node("a", lambda ctx: 1, persist=True)
    graph.node("loose", lambda ctx: 1)
    graph.node("b", lambda ctx, loose: loose, plain="loose", version="1", persist=True)
    with pytest.raises(ContextError, match=r"`b` cannot be stored on disk.*input `loose` without a version"):
        graph.compile("b")


def test_a_livegrad_function_is_its_own_version(tmp_path: Path):
    def kept(factor: float) -> list[str]:
        graph = ContextGraph()
        kernel = context_function(lambda x: x * context("animation_time") * factor, f32)
        graph.value("x", 2.0)
        graph.node("paint", kernel, plain="x", persist=True)
        program = graph.compile("paint", root="animation_time", disk=DiskCache(tmp_path))
        with program.events() as log:
            assert float(program.evaluate(animation_time=3.0)) == 6.0 * factor
        return [event.kind for event in log if event.node == "paint"]

    assert [kept(1.5), kept(1.5), kept(2.5)] == [["computed"], ["loaded"], ["computed"]]
