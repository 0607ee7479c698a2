"""Files that violate a rule are rejected with an error that names the file; valid files load."""

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
def test_valid_files_load(tmp_path: Path, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # materials and slices are ignored
        assert load_3mf(written(tmp_path, WHOLE[name])).items


@pytest.mark.parametrize(("group", "name"), CASES)
def test_a_file_that_violates_a_rule_is_rejected(tmp_path: Path, group: str, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(FormatError, match=r"hand\.3mf"):
            load_3mf(written(tmp_path, BROKEN[group][name]))


def test_at_least_a_hundred_rules_have_a_test() -> None:
    assert len(CASES) >= 100
