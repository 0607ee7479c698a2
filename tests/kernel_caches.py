"""Fixtures about compiled code, for tests of code generators and run times."""

import gc
from collections.abc import Iterator

import pytest

from livegrad.runtime.cpu.kernel_code import forget_kernels
from livegrad.runtime.cpu.tier_up import background_compiler
from livegrad.runtime.object_cache import CacheSettings, ObjectCache, set_default_cache


@pytest.fixture
def without_caches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing comes from a cache, and better code comes only when it is asked for."""
    before = set_default_cache(ObjectCache(CacheSettings(None)))
    monkeypatch.setattr(background_compiler, "quiet_seconds", 3600.0)
    forget_kernels()
    yield
    monkeypatch.undo()
    forget_kernels()
    background_compiler.wait()
    set_default_cache(before)


@pytest.fixture
def settled_code() -> None:
    """Nobody else makes or frees code: what earlier tests left to be improved is, and their garbage is gone."""
    background_compiler.wait()
    gc.collect()
