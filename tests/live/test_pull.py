"""Pulling an output: least squares on chosen inputs, with bounds and pinned inputs, undone as one gesture."""

from typing import Any

import numpy as np
import pytest

import livegrad as lg

KICK, ONE = np.float64(0.1), np.float32(1.0)


def arm(a=0.1, b=0.2):
    return lg.stack([lg.cos(a) + lg.cos(b), lg.sin(a) + lg.sin(b)])


def engine_with(function, **options):
    engine = lg.Engine()
    block = engine.add(lg.block(function, name="block", **options))
    engine.step()
    engine.history.clear()
    return engine, block


def test_a_point_arrives_and_the_pull_is_one_entry():
    engine, block = engine_with(arm)
    start = engine.read(block).tolist()
    result = lg.live.pull(engine, of=block, to=[0.5, 1.2], by=[block["a"], block["b"]], label="pull the hand")
    assert result.converged
    assert result.before > 1.0
    assert result.after < 1e-5
    engine.step()
    np.testing.assert_allclose(engine.read(block), [0.5, 1.2], atol=1e-5)
    assert [entry.label for entry in engine.history.entries] == ["pull the hand"]
    assert engine.history.undo() == "pull the hand"
    engine.step()
    assert engine.read(block).tolist() == start


def test_a_drag_of_many_pulls_is_one_entry_of_the_outer_gesture():
    engine, block = engine_with(arm)
    with engine.history.gesture("drag"):
        for x in np.linspace(1.9, 0.5, 8):
            lg.live.pull(engine, of=block, to=[x, 0.8], by=[block["a"], block["b"]])
            engine.step()
    np.testing.assert_allclose(engine.read(block), [0.5, 0.8], atol=1e-5)
    assert [entry.label for entry in engine.history.entries] == ["drag"]


def test_pinned_inputs_stay_and_what_cannot_be_reached_is_approached():
    engine, block = engine_with(arm)
    result = lg.live.pull(engine, of=block, to=[0.0, 3.0], by=[block["a"], block["b"]], pinned=[block["b"]])
    assert result.converged
    assert list(result.values) == [block["a"]]
    engine.step()
    fixed = np.array([np.cos(0.2), np.sin(0.2)])
    direction = np.array([0.0, 3.0]) - fixed
    np.testing.assert_allclose(engine.read(block), fixed + direction / np.linalg.norm(direction), atol=2e-3)
    with pytest.raises(lg.UsageError, match=r"all inputs are pinned \(test_pull.py:\d+"):
        lg.live.pull(engine, of=block, to=0.0, by=[block["a"]], pinned=[block["a"]])


def test_bounds_hold_and_the_others_make_up_for_them():
    engine, block = engine_with(lambda x=1.0, y=1.0, z=1.0: x + 2.0 * y + 3.0 * z)
    block["x"].control = lg.Control(0.0, 1.5)
    result = lg.live.pull(
        engine, of=block, to=30.0, by=[block[name] for name in "xyz"], bounds={block["y"]: (-1.0, 2.0)}
    )
    x, y, z = (result.values[block[name]] for name in "xyz")
    assert 0.0 <= x <= 1.5
    assert -1.0 <= y <= 2.0
    assert abs(x + 2 * y + 3 * z - 30.0) < 1e-4
    assert result.converged
    again = lg.live.pull(engine, of=block, to=30.0, by=[block["z"]])  # before a frame has the new values
    assert again.before < 1e-4
    stuck = lg.live.pull(engine, of=block, to=1e6, by=[block["x"]])
    assert stuck.converged
    assert stuck.values[block["x"]] == 1.5


def test_a_value_outside_its_bounds_moves_inside_only_if_that_is_better():
    engine, block = engine_with(lambda x=5.0: x * 1.0)
    assert lg.live.pull(engine, of=block, to=9.0, by=[block["x"]], bounds={block["x"]: (0.0, 2.0)}).values == {
        block["x"]: 5.0
    }
    assert engine.history.entries == ()
    moved = lg.live.pull(engine, of=block, to=-9.0, by=[block["x"]], bounds={block["x"]: (0.0, 2.0)})
    assert moved.values == {block["x"]: 0.0}


@pytest.mark.parametrize("seed", range(6))
def test_linear_problems_agree_with_numpy(seed):
    chance = np.random.default_rng(seed)
    rows, columns = (5, 3) if seed % 2 else (2, 4)
    matrix, wanted = chance.normal(size=(rows, columns)), chance.normal(size=rows)
    engine = lg.Engine()
    block = engine.add(lg.block(lambda m, x: m @ x, name="product"))
    engine.set(block["m"], matrix)
    engine.set(block["x"], np.zeros(columns))
    engine.step()
    result = lg.live.pull(engine, of=block, to=wanted, by=[block["x"]], damping=1e-9)
    best = np.linalg.lstsq(matrix, wanted, rcond=None)[0]
    np.testing.assert_allclose(result.after, np.linalg.norm(matrix @ best - wanted), atol=1e-7)
    if rows > columns:
        np.testing.assert_allclose(result.values[block["x"]], best, atol=1e-5)
    engine.step()
    np.testing.assert_allclose(np.linalg.norm(engine.read(block) - wanted), result.after, atol=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_bounded_problems_satisfy_the_optimality_conditions(seed):
    chance = np.random.default_rng(seed)
    matrix, wanted = chance.normal(size=(6, 4)), 3.0 * chance.normal(size=6)
    engine = lg.Engine()
    block = engine.add(lg.block(lambda m, x: m @ x, name="product"))
    engine.set(block["m"], matrix)
    engine.set(block["x"], np.zeros(4))
    engine.step()
    result = lg.live.pull(
        engine, of=block, to=wanted, by=[block["x"]], bounds={block["x"]: (-0.5, 0.5)}, steps=200, damping=1e-6
    )
    x = result.values[block["x"]]
    slope = matrix.T @ (matrix @ x - wanted)
    inside = np.abs(x) < 0.5 - 1e-9
    assert np.abs(slope[inside]).max(initial=0.0) < 1e-4
    assert (slope[x >= 0.5 - 1e-9] <= 1e-6).all()
    assert (slope[x <= -0.5 + 1e-9] >= -1e-6).all()


def test_a_pull_through_frames_changes_what_will_be():
    engine = lg.Engine()
    height, speed = engine.add(lg.State("height", np.float64(0.0))), engine.add(lg.State("speed", np.float64(0.0)))
    fall = engine.add(lg.block(lambda v, kick=KICK: v * 0.98 + 0.01 * kick, name="fall"))
    rise = engine.add(lg.block(lambda h, v: h + 0.1 * v, name="rise"))
    engine.connect(speed, fall["v"])
    engine.connect(fall, speed["next"])
    engine.connect(height, rise["h"])
    engine.connect(fall, rise["v"])
    engine.connect(rise, height["next"])
    engine.step()
    result = lg.live.pull(engine, of=rise, to=2.0, by=[fall["kick"]], frames=30)
    assert result.converged
    for _ in range(30):
        engine.step()
    np.testing.assert_allclose(engine.read(rise), 2.0, rtol=1e-9)


def test_undefined_values_are_not_entered():
    engine, block = engine_with(lambda x=1.0: lg.sqrt(x) * 2.0)
    result = lg.live.pull(engine, of=block, to=0.01, by=[block["x"]])
    assert result.after < 2.0
    assert result.values[block["x"]] >= 0.0
    flat = engine.add(lg.block(lambda x=1.0: x * 0.0 + 3.0, name="flat"))
    engine.step()
    assert lg.live.pull(engine, of=flat, to=1.0, by=[flat["x"]]).values == {flat["x"]: 1.0}


def test_numbers_keep_their_types():
    engine, block = engine_with(lambda x=1.0, y=ONE, z=2: x + y + z)
    result = lg.live.pull(engine, of=block, to=7.0, by=[block["x"], block["y"]])
    assert [type(value) for value in result.values.values()] == [float, np.float32]
    frame = engine.step()
    assert frame.ok
    np.testing.assert_allclose(engine.read(block), 7.0, rtol=1e-5)


def test_invalid_arguments_name_the_line():
    engine, block = engine_with(arm)
    other = engine.add(lg.block(lambda n=3, x=1.0: x * n, name="other"))
    engine.step()
    x = other["x"]
    mistakes: list[Any] = [
        (lambda: lg.live.pull(engine, of=other, to="far", by=[x]), "cannot become this"),
        (lambda: lg.live.pull(engine, of=block, to=[1.0, 2.0, 3.0], by=[block["a"]]), "cannot become this"),
        (lambda: lg.live.pull(engine, of=other, to=1.0, by=[other["n"]]), "cannot be pulled"),
        (lambda: lg.live.pull(engine, of=other, to=1.0, by=[x], bounds={x: (2.0, 1.0)}), "invalid bounds"),
        (lambda: lg.live.pull(engine, of=other, to=1.0, by=[x], damping=0.0), "damping must be positive"),
        (lambda: lg.live.pull(engine, of=other, to=1.0, by=[x], steps=0), "`steps` counts steps"),
    ]
    for mistake, said in mistakes:
        with pytest.raises(lg.UsageError, match=said) as caught:
            mistake()
        assert "test_pull.py" in str(caught.value)
