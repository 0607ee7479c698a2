"""Cache sizes are those that Linux reports, or None."""

from pathlib import Path

import pytest

from livegrad.runtime.cpu.native.caches import cache_bytes


def describe(folder: Path, **caches: str) -> None:
    for name, text in caches.items():
        (folder / name).mkdir()
        for what, value in zip(("level", "type", "size"), text.split(), strict=False):
            (folder / name / what).write_text(value + "\n")


@pytest.mark.parametrize(("level", "size"), [(1, 48 << 10), (2, 2 << 20), (3, None), (4, None)])
def test_the_data_cache_of_a_level_is_reported(tmp_path: Path, level: int, size: int | None) -> None:
    describe(tmp_path, index0="1 Instruction 32K", index1="1 Data 48K", index2="2 Unified 2048K", index3="3 Unified")
    assert cache_bytes(tmp_path, level) == size


def test_a_system_without_cache_information_has_no_size(tmp_path: Path) -> None:
    assert cache_bytes(tmp_path / "absent", 2) is None
