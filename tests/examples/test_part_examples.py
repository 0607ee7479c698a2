"""The examples of parts: one is fitted and written, one is read from a file; both leave pictures and closed meshes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import livegrad as lg

FOLDER = Path(__file__).resolve().parents[2] / "examples"


def example(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


def test_the_fit_finds_the_dimensions_of_the_scanned_bracket(tmp_path, capsys):
    module = example("fitted_bracket")
    fitted = module.main(["--size", "48", "--feature-size", "3", "--out", str(tmp_path)])
    for name, value in module.SCANNED.items():
        assert float(fitted.parameters[name]) == pytest.approx(value, abs=0.02)
    assert "RMS distance" in capsys.readouterr().out
    assert lg.load_stl(tmp_path / "bracket.stl").vertices.shape[1] == 3
    (read,) = lg.parts(lg.load_3mf(tmp_path / "bracket.3mf"))
    points = np.random.default_rng(0).uniform((-27, -15, -1), (27, 15, 33), (500, 3))
    inside = fitted(points) < 0
    np.testing.assert_array_equal(read(points) < 0, inside)
    np.testing.assert_allclose(read(points)[inside], fitted(points)[inside], atol=1e-4)


def test_the_block_is_written_read_and_looked_at(tmp_path, capsys):
    part = example("look_at_part").main(["--size", "48", "--cells", "12", "--out", str(tmp_path)])
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".3mf", ".png", ".stl", ".svg"]
    assert ", closed" in capsys.readouterr().out
    assert part.name == "gyroid block"
