"""The sizes of this processor's caches, where the system tells them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

_OF_FIRST_PROCESSOR = Path("/sys/devices/system/cpu/cpu0/cache")
_USUAL_SECOND_LEVEL = 1 << 20  # bytes: processors have 256 KB to 2 MB


@lru_cache(maxsize=1)
def second_level_bytes() -> int:
    """How much the second-level cache of one core holds.

    >>> second_level_bytes() >= 1 << 16
    True
    """
    return cache_bytes(_OF_FIRST_PROCESSOR, 2) or _USUAL_SECOND_LEVEL


def cache_bytes(folder: Path, level: int) -> int | None:
    """The size of the data cache of a level, from a folder as Linux has it; None if it does not say."""
    for cache in sorted(folder.glob("index*")):
        try:
            facts = {name: (cache / name).read_text().strip() for name in ("level", "type", "size")}
        except OSError:  # a container may hide some of it
            continue
        if facts["level"] == str(level) and facts["type"] != "Instruction" and facts["size"].endswith("K"):
            return int(facts["size"][:-1]) << 10
    return None
