"""What the tests of passes share: each module's tests have a session of their own.

Nodes are interned, with their places: derivatives that stay in caches would show up in the texts of other tests.
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
