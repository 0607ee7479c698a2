"""The op table: importing this package defines every op.

Rules come in with the modules; passes and backends look ops up by name or import them from here.
"""

from livegrad.ops import (
    aggregate,
    control,
    differential,
    elementwise,
    indexing,
    linalg,
    movement,
    random,
    reduction,
    trace,
    transcendental,
    vector,
)

__all__ = [
    "aggregate",
    "control",
    "differential",
    "elementwise",
    "indexing",
    "linalg",
    "movement",
    "random",
    "reduction",
    "trace",
    "transcendental",
    "vector",
]
