"""What a subject opens: an engine and, if it shows a part, the block that computes the part's field.

Built by `sections.py`, the gallery and `subjects.py`; the engine thread opens it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from livegrad.implicit.bodies.part import Part
from livegrad.live.engine import Engine
from livegrad.live.graph.block import Block


@dataclass(frozen=True)
class PartField:
    """A part, and the block whose inputs have the names of its parameters and tables."""

    part: Part
    block: Block


@dataclass(frozen=True)
class Scene:
    """An engine to show. `field` is what its 3D view draws; `path` is the document that it was opened from."""

    engine: Engine
    field: PartField | None = None
    path: Path | None = None


def part_with_values(part: Part, values: dict[str, Any]) -> Part:
    """A part with other values of its parameters and tables; those that are missing stay."""
    changed = part.with_parameters(**{name: value for name, value in values.items() if name in part.parameter_names})
    count = len(part.parameter_names)
    tables = [values.get(name, table) for name, table in zip(part.table_names, part.arguments[count:], strict=True)]
    return replace(changed, arguments=(*changed.arguments[:count], *tables))
