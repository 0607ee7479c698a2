"""Files that a reader must refuse are refused in words, with the file; those that are right are read."""

import warnings
import zipfile
from pathlib import Path

import pytest

from livegrad.implicit.formats.errors import FormatError
from livegrad.implicit.formats.threemf import load_3mf
from tests.implicit.formats.broken_files import BROKEN, WHOLE, Package

CASES = [(group, name) for group, cases in BROKEN.items() for name in cases]


def written(folder: Path, package: Package) -> Path:
    path = folder / "hand.3mf"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in package.items():
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_right_is_read(tmp_path: Path, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that materials and slices are passed over
        assert load_3mf(written(tmp_path, WHOLE[name])).items


@pytest.mark.parametrize(("group", "name"), CASES)
def test_what_breaks_one_rule_is_refused(tmp_path: Path, group: str, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(FormatError, match=r"hand\.3mf"):
            load_3mf(written(tmp_path, BROKEN[group][name]))


def test_there_are_more_such_files_than_the_core_suite_has() -> None:
    assert len(CASES) >= 100
