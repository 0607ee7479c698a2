"""Gives each test module of the passes its own session.

Nodes are interned with their source locations, so cached derivatives would appear in the output of other tests.
"""

import gc
from collections.abc import Iterator

import pytest

from livegrad.state import fresh_session


@pytest.fixture(scope="module", autouse=True)
def session_of_the_module() -> Iterator[None]:
    with fresh_session():
        yield
    gc.collect()
