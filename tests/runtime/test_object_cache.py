"""The object cache: hits, misses, rejected files, eviction, sharing by processes; it never makes a compilation fail."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from livegrad.runtime import object_cache
from livegrad.runtime.cpu.native import llvm_jit
from livegrad.runtime.cpu.native.llvm_jit import compile_kernel, object_key
from livegrad.runtime.object_cache import CacheSettings, CacheStats, ObjectCache

TEXT = "define i64 @f(i64 %x) {\n %y = add i64 %x, 1\n ret i64 %y\n}\n"
SOURCE = str(Path(llvm_jit.__file__).parents[4])


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    return ObjectCache(CacheSettings(tmp_path / "objects"))


def reopened(cache: ObjectCache) -> ObjectCache:
    return ObjectCache(cache.settings)


def test_the_second_compilation_loads_from_disk(cache: ObjectCache) -> None:
    before = llvm_jit.stats()
    compile_kernel(TEXT, "f", cache=cache)
    again = reopened(cache)
    compile_kernel(TEXT, "f", cache=again)
    after = llvm_jit.stats()
    assert (after.compiled - before.compiled, after.loaded_from_disk - before.loaded_from_disk) == (1, 1)
    assert cache.stats() == CacheStats(missed=1, stored=1)
    assert again.stats() == CacheStats(loaded=1)


def test_text_and_speed_are_part_of_the_key() -> None:
    keys = {object_key(TEXT, 2), object_key(TEXT, 3), object_key(TEXT + "\n", 2)}
    assert len(keys) == 3
    assert object_key(TEXT, 2) == object_key(TEXT, 2)


@pytest.mark.parametrize("damage", ["truncate", "flip", "foreign", "empty", "other key"])
def test_bad_files_are_rejected_and_rewritten(cache: ObjectCache, damage: str) -> None:
    compile_kernel(TEXT, "f", cache=cache)
    path = cache.path_of(object_key(TEXT))
    assert path is not None
    good = path.read_bytes()
    bad = {
        "truncate": good[:-10],
        "flip": good[:-10] + bytes([good[-10] ^ 1]) + good[-9:],
        "foreign": b"#!/bin/sh\n" * 100,
        "empty": b"",
        "other key": good[:20] + bytes(32) + good[52:],
    }[damage]
    path.write_bytes(bad)
    again = reopened(cache)
    compile_kernel(TEXT, "f", cache=again)
    assert again.stats() == CacheStats(missed=1, rejected=1, stored=1)
    assert path.read_bytes()[:84] == good[:84]


def test_an_intact_file_that_is_no_object_is_recompiled(cache: ObjectCache) -> None:
    cache.store(object_key(TEXT), b"well kept, and not an object")
    again = reopened(cache)
    compile_kernel(TEXT, "f", cache=again)
    assert again.stats() == CacheStats(missed=1, rejected=1, stored=1)
    compile_kernel(TEXT, "f", cache=again)
    assert again.stats().loaded == 1


def test_the_least_recently_used_are_evicted(tmp_path: Path) -> None:
    cache = ObjectCache(CacheSettings(tmp_path, max_bytes=20 * 4096))
    keys = [bytes([n]) * 32 for n in range(20)]
    for age, key in enumerate(keys):
        cache.store(key, bytes(3000))
        path = cache.path_of(key)
        assert path is not None
        os.utime(path, (1e9 + age, 1e9 + age))
    assert cache.load(keys[0]) is not None  # old enough to be touched, so now it is the newest
    cache.store(b"x" * 32, bytes(3000))
    stats = cache.stats()
    assert stats.evicted > 0
    assert cache.load(keys[0]) is not None
    assert cache.load(keys[1]) is None
    assert cache.load(b"x" * 32) is not None
    stored_bytes = sum(entry.stat().st_size for entry in tmp_path.iterdir() if entry.suffix == ".object")
    assert stored_bytes <= 20 * 4096


def test_storing_below_the_limit_never_scans(cache: ObjectCache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.store(b"a" * 32, b"first")  # a new, empty directory is scanned once
    scans: list[object] = []
    monkeypatch.setattr(os, "scandir", lambda *arguments: scans.append(arguments))
    for n in range(50):
        cache.store(bytes([n]) * 32, b"payload")
    assert scans == []
    assert cache.stats().stored == 51


@pytest.mark.parametrize("kind", ["file in the way", "no directory", "read only"])
def test_an_unusable_directory_means_no_caching(tmp_path: Path, kind: str) -> None:
    directory: Path | None = tmp_path / "cache"
    assert directory is not None
    if kind == "file in the way":
        directory.write_text("a file")
    elif kind == "read only":
        directory = Path("/proc/livegrad-cannot-write-here")
    else:
        directory = None
    cache = ObjectCache(CacheSettings(directory))
    for _ in range(2):
        assert compile_kernel(TEXT, "f", cache=cache).address
    assert cache.stats().stored == 0
    assert cache.stats().loaded == 0
    assert (cache.stats().unavailable > 0) == (directory is not None)


def test_environment_chooses_the_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVEGRAD_CACHE_DIR", "/somewhere")
    assert CacheSettings.from_environment().directory == Path("/somewhere")
    monkeypatch.setenv("LIVEGRAD_CACHE_DIR", "")
    assert CacheSettings.from_environment().directory is None
    monkeypatch.delenv("LIVEGRAD_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    if sys.platform == "linux":
        assert CacheSettings.from_environment().directory == Path("/elsewhere/livegrad")


SHARING = """
import sys
from pathlib import Path
from livegrad.runtime.cpu.native import llvm_jit
from livegrad.runtime.object_cache import CacheSettings, ObjectCache
cache = ObjectCache(CacheSettings(Path(sys.argv[1])))
for round in range(3):
    for n in range(20):
        text = f"define i64 @f(i64 %x) {{\\n %y = add i64 %x, {n}\\n ret i64 %y\\n}}\\n"
        llvm_jit.compile_kernel(text, "f", speed=0, cache=cache)
stats = cache.stats()
assert stats.rejected == 0 and stats.unavailable == 0, stats
assert stats.loaded >= 40, stats
"""


def test_two_processes_share_one_directory(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": SOURCE}
    both = [subprocess.Popen([sys.executable, "-c", SHARING, str(tmp_path)], env=environment) for _ in range(2)]
    assert [process.wait(timeout=60) for process in both] == [0, 0]
    assert len(list(tmp_path.glob("*.object"))) == 20
    assert list(tmp_path.glob("*.partial")) == []


def test_callers_do_not_wait_for_eviction_from_a_large_directory(tmp_path, monkeypatch):
    """Scanning a hundred thousand files took five seconds, and longer from a cold disk."""
    monkeypatch.setattr(object_cache, "_MAX_INLINE_SCAN", 0)
    cache = ObjectCache(CacheSettings(tmp_path / "objects", max_bytes=8 * 4096))
    may_go_on, evict = threading.Event(), cache._evict
    monkeypatch.setattr(cache, "_evict", lambda: may_go_on.wait(10.0) and evict())
    keys = [bytes([number]) * 32 for number in range(12)]
    for key in keys:
        cache.store(key, b"object")
    assert cache.stats().stored == 12
    assert cache.stats().evicted == 0
    may_go_on.set()
    with cache._evicting:  # held by the background thread
        assert cache.stats().evicted >= 4
    assert cache.stats().unavailable == 0
