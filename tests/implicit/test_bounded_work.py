"""Small files cannot cause unbounded work: a callee is compiled once, and exponential work is rejected."""

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
    """f_k(p) = min(f_{k-1}(p), f_{k-1}(p + o)): each level doubles the number of balls."""
    assembly = lg.implicit.add_expression(lg.Assembly(), "f0", "length(pos) - 0.05", {"pos": "vector"})
    for level in range(1, levels + 1):
        name = f"f{level}"
        assembly = assembly.add_function(name, {"pos": PortType.VECTOR}, {"shape": PortType.SCALAR})
        assembly = assembly.add_node(name, "FunctionCall", "a", functionID=level, pos="inputs.pos")
        assembly = assembly.add_node(name, "ConstVec", "o", value=(0.5 / 2**level, 0.01 * level, 0.0))
        assembly = assembly.add_node(name, "Addition", "s", A="inputs.pos", B="o.vector")
        assembly = assembly.add_node(name, "FunctionCall", "b", functionID=level, pos="s.result")
        assembly = assembly.add_node(name, "Min", "m", A="a.shape", B="b.shape")
        assembly = assembly.link(name, "m.result", "outputs.shape")
    return assembly


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


def test_sixty_levels_of_calls_are_rejected_with_the_number_of_operations() -> None:
    part = lg.implicit.part_of_function(doubled(60), "f60", BOX)
    with pytest.raises(CompileError, match=r"is too large: its functions call each other too many times.*e\+1[89]"):
        part([0, 0, 0])
    with pytest.raises(CompileError, match="too many times"):
        fit_bounds(part)


def test_nested_gradients_are_computed_or_rejected() -> None:
    assembly = lg.implicit.add_expression(lg.Assembly(), "f0", "length(pos) - 0.5", {"pos": "vector"})
    for level in range(1, 31):
        name = f"f{level}"
        assembly = assembly.add_function(name, {"pos": PortType.VECTOR}, {"shape": PortType.SCALAR})
        assembly = assembly.add_node(
            name,
            "FunctionGradient",
            "g",
            functionID=level,
            step=1e-2,
            pos="inputs.pos",
            scalar_output="shape",
            vector_input="pos",
        )
        assembly = assembly.link(name, "g.magnitude", "outputs.shape")
    two = lg.implicit.part_of_function(assembly, "f2", BOX)
    assert np.isfinite(two([0.3, 0.2, 0.1]))
    with pytest.raises(CompileError, match="too many times"):
        lg.implicit.part_of_function(assembly, "f30", BOX)([0.3, 0.2, 0.1])


def nested_components(levels: int) -> lg.Assembly:
    """Components of two components of two components, and so on, of a ball."""
    assembly = lg.implicit.assembly_of_part(lg.shapes.sphere(1.0).part(((-2, -2, -2), (2, 2, 2)), "ball"))
    (item,) = assembly.items
    resources, inner = dict(assembly.resources), item.object
    for level in range(levels):
        resources[1000 + level] = Components(((inner, IDENTITY), (inner, IDENTITY)))
        inner = 1000 + level
    return replace(assembly, resources=resources, items=(BuildItem(inner),))


def test_nested_components_are_counted_before_they_are_expanded() -> None:
    assert len(parts(nested_components(2))) == 4
    with pytest.raises(lg.implicit.AssemblyError, match=r"builds too many parts.*found 536,870,912"):
        parts(nested_components(29))


def calls_for_bounds_of(sines: int) -> int:
    """The number of Python calls that compile the bounds of a chain of sines to kernels."""
    chain = "; ".join(f"x{index + 1} = sin(x{index} + 0.1)" for index in range(sines))
    assembly = lg.implicit.add_expression(
        lg.Assembly(), "f", f"x0 = length(pos); {chain}; x{sines}", {"pos": PortType.VECTOR}
    )
    function = lg.implicit.to_function(assembly, "f")
    bounds = bound_intervals(function, [True] * len(function.parameters))
    gc.collect()
    gc.disable()
    profile = cProfile.Profile()
    profile.enable()
    compile_function(bounds).schedule()
    profile.disable()
    gc.enable()
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.own_process  # counts calls, which the cleanup of other tests would add to
def test_compiling_bounds_takes_time_linear_in_the_function() -> None:
    calls_for_bounds_of(100)  # initialisation
    small, middle, large = (calls_for_bounds_of(sines) for sines in (120, 240, 480))
    # Twice as many sines: quadratic work would be four times as much.
    assert middle < 2.3 * small
    assert large < 2.3 * middle
