"""Fixtures for tests of compiled code."""

import pytest

from livegrad.runtime.cpu.tier_up import background_compiler
from livegrad.runtime.object_cache import CacheSettings, ObjectCache, set_default_cache


@pytest.fixture
def without_caches(own_session: None) -> None:
    """Nothing comes from a cache, and the optimised tier comes only when a test waits for it."""
    set_default_cache(ObjectCache(CacheSettings(None)))
    background_compiler.current.quiet_seconds = 3600.0
