"""Small files never make endless work: a called function is compiled once, and what would never end is refused."""

import cProfile
import gc
from dataclasses import replace

import numpy as np
import pytest

import livegrad as lg
from livegrad.diagnostics import CompileError
from livegrad.implicit.bodies.clipping import fit_bounds
from livegrad.implicit.bodies.level_sets import parts
from livegrad.implicit.nodes.ports import PortType
from livegrad.implicit.nodes.resources import IDENTITY, BuildItem, Components
from livegrad.passes.bound_intervals import bound_intervals
from livegrad.runtime.cpu import compile_function

BOX = ((-1, -1, -1), (1, 1, 1))


def doubled(levels: int) -> lg.Assembly:
    """f_k(p) = min(f_{k-1}(p), f_{k-1}(p + o)): twice as many balls with each level."""
    made = lg.implicit.add_expression(lg.Assembly(), "f0", "length(pos) - 0.05", {"pos": "vector"})
    for level in range(1, levels + 1):
        name = f"f{level}"
        made = made.add_function(name, {"pos": PortType.VECTOR}, {"shape": PortType.SCALAR})
        made = made.add_node(name, "FunctionCall", "a", functionID=level, pos="inputs.pos")
        made = made.add_node(name, "ConstVec", "o", value=(0.5 / 2**level, 0.01 * level, 0.0))
        made = made.add_node(name, "Addition", "s", A="inputs.pos", B="o.vector")
        made = made.add_node(name, "FunctionCall", "b", functionID=level, pos="s.result")
        made = made.add_node(name, "Min", "m", A="a.shape", B="b.shape")
        made = made.link(name, "m.result", "outputs.shape")
    return made


def expected(levels: int, points: np.ndarray) -> np.ndarray:
    if not levels:
        return np.linalg.norm(points, axis=-1) - 0.05
    step = np.array([0.5 / 2**levels, 0.01 * levels, 0.0])
    return np.minimum(expected(levels - 1, points), expected(levels - 1, points + step))


def test_a_part_of_twelve_levels_of_calls_has_values_bounds_and_normals() -> None:
    part = lg.implicit.part_of_function(doubled(12), "f12", BOX)
    points = np.random.default_rng(0).uniform(-1, 1, (64, 3)).astype(np.float32)
    np.testing.assert_allclose(part(points), expected(12, points), atol=1e-5)
    close = fit_bounds(part)
    assert (close.low >= -1).all()
    assert (close.low < [-0.5, -0.75, 0]).all()
    assert (close.high < 0.1).all()
    np.testing.assert_allclose(np.linalg.norm(part.normal(points), axis=-1), 1.0, atol=1e-4)


def test_sixty_levels_of_calls_are_refused_with_the_number_of_operations() -> None:
    part = lg.implicit.part_of_function(doubled(60), "f60", BOX)
    with pytest.raises(CompileError, match=r"is too large: its functions call each other too many times.*e\+1[89]"):
        part([0, 0, 0])
    with pytest.raises(CompileError, match="too many times"):
        fit_bounds(part)


def test_gradients_of_gradients_of_gradients_are_refused_or_computed() -> None:
    made = lg.implicit.add_expression(lg.Assembly(), "f0", "length(pos) - 0.5", {"pos": "vector"})
    for level in range(1, 31):
        name = f"f{level}"
        made = made.add_function(name, {"pos": PortType.VECTOR}, {"shape": PortType.SCALAR})
        made = made.add_node(
            name,
            "FunctionGradient",
            "g",
            functionID=level,
            step=1e-2,
            pos="inputs.pos",
            scalar_output="shape",
            vector_input="pos",
        )
        made = made.link(name, "g.magnitude", "outputs.shape")
    two = lg.implicit.part_of_function(made, "f2", BOX)
    assert np.isfinite(two([0.3, 0.2, 0.1]))
    with pytest.raises(CompileError, match="too many times"):
        lg.implicit.part_of_function(made, "f30", BOX)([0.3, 0.2, 0.1])


def nested_components(levels: int) -> lg.Assembly:
    """A ball, two of it, two of those two, and so on."""
    made = lg.implicit.assembly_of_part(lg.shapes.sphere(1.0).part(((-2, -2, -2), (2, 2, 2)), "ball"))
    (item,) = made.items
    resources, inner = dict(made.resources), item.object
    for level in range(levels):
        resources[1000 + level] = Components(((inner, IDENTITY), (inner, IDENTITY)))
        inner = 1000 + level
    return replace(made, resources=resources, items=(BuildItem(inner),))


def test_components_of_components_are_counted_before_they_are_placed() -> None:
    assert len(parts(nested_components(2))) == 4
    with pytest.raises(lg.implicit.AssemblyError, match=r"builds too many parts.*found 536,870,912"):
        parts(nested_components(29))


def calls_for_bounds_of(sines: int) -> int:
    """How many calls of functions it takes to compile the bounds of a chain of sines, up to kernels."""
    chain = "; ".join(f"x{index + 1} = sin(x{index} + 0.1)" for index in range(sines))
    made = lg.implicit.add_expression(
        lg.Assembly(), "f", f"x0 = length(pos); {chain}; x{sines}", {"pos": PortType.VECTOR}
    )
    function = lg.implicit.to_function(made, "f")
    bounds = bound_intervals(function, [True] * len(function.parameters))
    gc.collect()
    gc.disable()
    profile = cProfile.Profile()
    profile.enable()
    compile_function(bounds).schedule()
    profile.disable()
    gc.enable()
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.own_process  # calls are counted, and clearing up after other tests would count
def test_the_work_of_compiling_bounds_is_linear_in_the_length_of_a_function() -> None:
    calls_for_bounds_of(100)  # what is done once
    small, middle, large = (calls_for_bounds_of(sines) for sines in (120, 240, 480))
    # Twice as many sines; a square would make it four times.
    assert middle < 2.3 * small
    assert large < 2.3 * middle
