"""The worked example learns, and writes its two pictures."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import livegrad as lg

PATH = Path(__file__).resolve().parents[2] / "examples" / "fit_network.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    specification = importlib.util.spec_from_file_location("fit_network", PATH)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["fit_network"] = module
    specification.loader.exec_module(module)
    return module


def test_it_learns_and_writes_its_pictures(example, tmp_path, capsys):
    assert example.main(["--steps", "120", "--out", str(tmp_path)]) > 0.9
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fit_network.png", "fit_network_loss.svg"]
    assert (tmp_path / "fit_network.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert (tmp_path / "fit_network_loss.svg").read_text().startswith("<svg")
    assert capsys.readouterr().out.count("loss") == 10


def test_its_gradients_are_right(example):
    points, labels = example.two_moons(16)
    double = lg.tree_map(lambda x: lg.astype(x, lg.float64), example.initial_parameters())
    lg.check_gradients(lambda p: example.loss(p, lg.astype(points, lg.float64), lg.astype(labels, lg.float64)), double)


def test_its_loss_is_the_cross_entropy(example):
    points, labels = example.two_moons(16)
    parameters = example.initial_parameters()
    belief = 1.0 / (1.0 + np.exp(-example.network(parameters, points).numpy().astype(np.float64)))
    expected = -np.mean(np.where(labels.numpy() > 0.5, np.log(belief), np.log(1.0 - belief)))
    np.testing.assert_allclose(float(example.loss(parameters, points, labels)), expected, rtol=1e-5)
