"""Fixtures for tests of the IR: an op that accepts any attributes, and graphs without source lines."""

from collections.abc import Iterator

import pytest

import livegrad.ops  # noqa: F401  (defines the ops that texts name)
from livegrad.ir.op import Op
from livegrad.ir.types import UNIT, Type


def _annotated_type(*types: Type, **attributes: object) -> Type:
    return types[0] if types else UNIT


@pytest.fixture(scope="module")
def annotate() -> Iterator[Op]:
    """An op that gives its operand (or the unit) and takes any attributes; in the table for a module's tests only."""
    op = Op("annotate", type_of=_annotated_type)
    yield op
    del Op.table[op.name]
