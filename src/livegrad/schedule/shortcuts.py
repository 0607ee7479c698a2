"""Which optimisations of the schedule are in use: all of them, unless a test compares with and without one."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True)
class Shortcuts:
    """Each may be switched off without any result changing by more than rounding.

    >>> Shortcuts().without("seams").seams
    False
    """

    fusion: bool = True  # several results in one kernel
    guarded_loads: bool = True  # padding inside of the kernel that reads it
    writes_in_place: bool = True  # what only a write by index uses is computed where it is changed
    point_loops: bool = True
    small_products: bool = True
    seams: bool = True
    thread_totals: bool = True
    turned_products: bool = True
    shared_sweeps: bool = True
    row_chains: bool = True

    def without(self, name: str) -> Shortcuts:
        """All of these but one."""
        return replace(self, **{name: False})

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(field.name for field in fields(cls))


ALL = Shortcuts()
