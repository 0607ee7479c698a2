"""The particle system: emitted, pushed, integrated and edited at every level while it runs, on every executor."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np

from livegrad.implicit.formats.png import read_png

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "particles.py"


def example() -> ModuleType:
    specification = importlib.util.spec_from_file_location("particles", EXAMPLE)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["particles"] = module
    specification.loader.exec_module(module)
    return module


def test_particles_are_edited_while_they_run(executor_name, tmp_path, capsys):
    module = example()
    vars(module)["CAPACITY"] = 320
    system = module.main(["--backend", executor_name, "--frames", "12", "--size", "96", "--out", str(tmp_path)])
    edits = [line for line in capsys.readouterr().out.splitlines() if line.startswith("frame  ")]
    reported = [(line.split(":")[1].strip(), line.split(": ")[2].split()[0]) for line in edits]
    assert reported == [
        ("first frame", "COLD"),
        ("a stronger fountain", "HOT"),
        ("a third obstacle", "WARM"),
        ("rain", "COLD"),
        ("a bowl with waves instead of gravity", "CODE"),
    ]
    assert len(list(tmp_path.glob("frame*.png"))) == 12
    picture, _ = read_png((tmp_path / "frame011.png").read_bytes())
    assert picture.shape == (72, 96, 3)
    assert (tmp_path / "particles.png").read_bytes().count(b"fcTL") == 12
    # No particle has expired yet: three are emitted per frame at first, then five, plus one of rain.
    count = int(system.engine.read(system["count"]))
    assert count == 9 * 3 + 27 * 5 + 18 * 1
    rows = system.engine.read(system["particles"])
    assert np.all(np.isfinite(rows))
    assert np.all(np.abs(rows[:count, 0]) < module.WIDTH + 0.05)
    assert not np.any(rows[count:])
    for x, y, radius in system.obstacles:  # nothing is deep inside of an obstacle
        assert np.all(np.hypot(rows[:count, 0] - x, rows[:count, 1] - y) > 0.5 * radius)
    # The edit of the energy also updated its gradient: it agrees with central differences in one direction.
    check_force(system)


def check_force(system) -> None:
    engine, module = system.engine, sys.modules["particles"]
    alive = np.abs(engine.read(system["positions"])[:, 0]) < 50
    x, gradient = (np.float64(engine.read(system[name])[alive]) for name in ("positions", "force"))
    assert np.count_nonzero(gradient) > 100

    def total(points: np.ndarray) -> float:
        squared = np.sum((points[:, None] - points[None]) ** 2, -1) / module.REPULSION_RADIUS**2
        apart = np.sqrt(np.sum((points[:, None] - system.obstacles[:, :2]) ** 2, -1))
        deep = np.maximum(system.obstacles[:, 2] + 0.02 - apart, 0)
        walls = np.maximum(np.abs(points[:, 0]) - module.WIDTH + 0.03, 0)
        floor = np.maximum(-0.97 - points[:, 1], 0)
        waves = 0.16 * np.sin(7 * points[:, 0]) * np.cos(5 * points[:, 1])
        return float(
            0.035 * np.sum(np.maximum(1 - squared, 0) ** 2)
            + 2.2 * np.sum(points[:, 0] ** 2 + 1.6 * points[:, 1] ** 2 + waves)
            + 1500 * (np.sum(deep**2) + np.sum(walls**2) + np.sum(floor**2))
        )

    direction = np.random.default_rng(0).standard_normal(x.shape)
    expected = (total(x + 1e-5 * direction) - total(x - 1e-5 * direction)) / 2e-5
    np.testing.assert_allclose(np.sum(gradient * direction), expected, rtol=1e-3)
