"""The cache sizes of this processor, as Linux reports them. The tiling of row chains depends on them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

_FIRST_PROCESSOR = Path("/sys/devices/system/cpu/cpu0/cache")
_DEFAULT_SECOND_LEVEL = 1 << 20  # bytes, if the system does not report it; processors have 256 KB to 2 MB


@lru_cache(maxsize=1)
def second_level_bytes() -> int:
    """The size of the second-level cache of one core.

    >>> second_level_bytes() >= 1 << 16
    True
    """
    return cache_bytes(_FIRST_PROCESSOR, 2) or _DEFAULT_SECOND_LEVEL


def cache_bytes(folder: Path, level: int) -> int | None:
    """The size of the data cache of a level, from a folder of Linux's `sysfs`; None if it is not listed."""
    for cache in sorted(folder.glob("index*")):
        try:
            fields = {name: (cache / name).read_text().strip() for name in ("level", "type", "size")}
        except OSError:  # a container may hide some of the files
            continue
        if fields["level"] == str(level) and fields["type"] != "Instruction" and fields["size"].endswith("K"):
            return int(fields["size"][:-1]) << 10
    return None
