"""Pytrees: leaves, structures, paths, static values and registered classes, under transforms and in files."""

from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import livegrad as lg
from livegrad.diagnostics import UsageError


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Dense:
    w: Any
    b: Any
    power: int = lg.static_field(default=2)
    activation: str = "tanh"


class Line:
    """Registered below; its name is static."""

    def __init__(self, start: Any, end: Any, name: str) -> None:
        self.start, self.end, self.name = start, end, name


lg.register_pytree(
    Line, lambda line: ((line.start, line.end), line.name), lambda name, ends: Line(ends[0], ends[1], name)
)


def random_tree(rng: np.random.Generator, depth: int = 3) -> Any:
    kind = rng.integers(0, 11 if depth else 4)
    if kind < 3:
        return [1.5, lg.asarray(rng.normal(size=rng.integers(0, 3, 2)).astype(np.float32)), 7][kind]
    if kind == 3:
        return [None, "name", np.sin, len][rng.integers(0, 4)] if rng.integers(0, 2) else 0.5
    parts = [random_tree(rng, depth - 1) for _ in range(rng.integers(0, 4))]
    names = [["b", "a", "c"][i] for i in range(len(parts))]
    match kind:
        case 4:
            return parts
        case 5:
            return tuple(parts)
        case 6:
            return dict(zip(names, parts, strict=True))
        case 7:
            return OrderedDict(zip(names, parts, strict=True))
        case 8:
            return Point(parts, parts)
        case 9:
            return Line(parts, 1.0, "edge")
    return Dense(parts, 2.0, int(rng.integers(0, 3)))


@pytest.mark.parametrize("seed", range(200))
def test_a_random_tree_comes_back_from_its_leaves_and_from_its_paths(seed: int) -> None:
    tree = random_tree(np.random.default_rng(seed))
    leaves, structure = lg.tree_flatten(tree)
    rebuilt = lg.tree_unflatten(structure, leaves)
    assert lg.tree_structure(rebuilt) == structure
    assert hash(lg.tree_structure(rebuilt)) == hash(structure)
    assert all(a is b for a, b in zip(lg.tree_leaves(rebuilt), leaves, strict=True))
    assert structure.num_leaves == len(leaves)
    for path, leaf in zip(lg.tree_leaves(lg.tree_map_with_path(lambda path, _: Path(path), tree)), leaves, strict=True):
        assert follow(tree, path.steps) is leaf


class Path:
    """A path as one leaf; a tuple would be a container."""

    def __init__(self, steps: tuple[Any, ...]) -> None:
        self.steps = steps


def follow(tree: Any, steps: tuple[Any, ...]) -> Any:
    for step in steps:
        if isinstance(tree, Line):
            tree = (tree.start, tree.end)[step]
        else:
            tree = getattr(tree, step) if isinstance(tree, Point | Dense) else tree[step]
    return tree


def test_leaves_are_in_the_order_of_sorted_keys_and_fields() -> None:
    assert lg.tree_leaves({"b": 1, "a": [2, (3, None)]}) == [2, 3, 1]
    assert lg.tree_leaves(OrderedDict(b=1, a=2)) == [1, 2]
    assert lg.tree_leaves(Dense(1.0, 2.0)) == [1.0, 2.0]
    doubled = lg.tree_map(lambda x: 2 * x, defaultdict(list, a=1))
    assert doubled == {"a": 2}
    assert doubled.default_factory is list


def test_is_leaf_stops_at_a_subtree() -> None:
    tree = {"p": Point(1, 2), "q": [1, 2]}
    assert lg.tree_leaves(tree, is_leaf=lambda part: isinstance(part, Point)) == [Point(1, 2), 1, 2]
    assert lg.tree_map(lambda part: part.x + part.y, [Point(1, 2)], is_leaf=lambda part: isinstance(part, Point)) == [3]
    assert lg.tree_reduce(lambda total, _: total + 1, tree, 0, is_leaf=lambda part: part is tree["q"]) == 3


def loss(layer: Dense, x: Any) -> Any:
    total = getattr(lg, layer.activation)(layer.w * x + layer.b)
    return lg.sum(sum(total for _ in range(layer.power)))


def test_strings_and_static_fields_pass_through_every_transform() -> None:
    layer, x = Dense(lg.ones(3), lg.asarray(0.5)), lg.asarray([0.1, 0.2, 0.3])
    expected = 2 * (1 - np.tanh(np.array([0.6, 0.7, 0.8])) ** 2)
    for transform in (lg.grad, lambda f: lg.jit(lg.grad(f)), lambda f: lg.grad(lg.jit(f)), lg.jacrev, lg.jacfwd):
        gradient = transform(loss)(layer, x)
        assert (gradient.power, gradient.activation) == (2, "tanh")
        np.testing.assert_allclose(gradient.b.numpy(), expected.sum(), rtol=1e-5)
        np.testing.assert_allclose(gradient.w.numpy(), expected * [0.1, 0.2, 0.3], rtol=1e-5)
    value, tangent = lg.jvp(loss, (layer, x), (layer, lg.zeros(3)))
    np.testing.assert_allclose(tangent.numpy(), (expected * np.array([0.6, 0.7, 0.8])).sum(), rtol=1e-5)
    np.testing.assert_allclose(value.numpy(), loss(layer, x).numpy(), rtol=1e-6)


def test_jit_traces_again_for_another_static_value_only() -> None:
    jitted = lg.jit(loss)
    for layer in (Dense(lg.ones(3), 0.5), Dense(lg.zeros(3), 1.5), Dense(lg.ones(3), 0.5, 3)):
        np.testing.assert_allclose(jitted(layer, 1.0).numpy(), loss(layer, 1.0).numpy(), rtol=1e-6)
    assert jitted.traces == 2


@pytest.mark.parametrize(("first", "second"), [(1, True), (0.0, -0.0), ("a", b"a"), (1, 1.0)])
def test_static_values_are_compared_exactly(first: Any, second: Any) -> None:
    structures = [lg.tree_structure(Dense(1.0, 1.0, value)) for value in (first, second)]
    assert structures[0] != structures[1]
    jitted = lg.jit(lambda layer: lg.asarray(str(layer.power) == str(first)))
    assert [bool(jitted(Dense(1.0, 1.0, value))) for value in (first, second)] == [True, str(first) == str(second)]


def test_control_flow_carries_strings_and_static_fields() -> None:
    start = {"layer": Dense(lg.ones(3), 0.0), "mode": "fast"}

    def body(state: Any, x: Any) -> Any:
        layer = state["layer"]
        return {"layer": Dense(layer.w + x, layer.b, layer.power), "mode": state["mode"]}, {"w": layer.w, "tag": "row"}

    end, rows = lg.scan(body, start, lg.asarray([1.0, 2.0]))
    assert (end["mode"], rows["tag"], end["layer"].power) == ("fast", "row", 2)
    np.testing.assert_array_equal(end["layer"].w.numpy(), [4.0, 4.0, 4.0])
    np.testing.assert_array_equal(rows["w"].numpy(), [[1.0] * 3, [2.0] * 3])
    again = lg.cond(lg.asarray(1.0) > 0, lambda s: s, lambda s: s, start)
    assert again["mode"] == "fast"
    with pytest.raises(UsageError):
        lg.fori_loop(0, 2, lambda i, s: {"x": s["x"] + 1.0, "mode": "slow"}, {"x": 1.0, "mode": "fast"})


def test_vmap_and_optimizers_leave_static_values_alone() -> None:
    layer = Dense(lg.ones((4, 3)), lg.zeros((4, 1)))
    assert lg.vmap(loss, in_axes=(0, None))(layer, 1.0).shape == (4,)
    optimizer = lg.optim.Adam(0.1)
    state = optimizer.init(layer)
    layer, state = optimizer.update(layer, lg.grad(lambda layer: loss(layer, 1.0))(layer), state)
    assert (layer.power, layer.activation) == (2, "tanh")
    np.testing.assert_allclose(layer.w.numpy(), np.full((4, 3), 0.9), rtol=1e-5)


def test_registered_classes_pass_through_transforms() -> None:
    line = Line(lg.asarray(2.0), lg.asarray(3.0), "edge")
    gradient = lg.jit(lg.grad(lambda line: line.start * line.end))(line)
    assert isinstance(gradient, Line)
    assert (float(gradient.start), float(gradient.end), gradient.name) == (3.0, 2.0, "edge")


def test_ravel_pytree_is_inverted_and_differentiable() -> None:
    tree = {"w": lg.asarray([[1.0, 2.0], [3.0, 4.0]]), "n": lg.asarray([1, 2]), "b": 0.5}
    vector, unravel = lg.ravel_pytree(tree)
    np.testing.assert_array_equal(vector.numpy(), [0.5, 1, 2, 1, 2, 3, 4])
    back = unravel(vector)
    assert (back["n"].dtype, back["w"].shape, back["b"].shape) == (lg.int64, (2, 2), ())
    gradient = lg.jit(lg.grad(lambda v: lg.sum(unravel(v)["w"] ** 2)))(vector)
    np.testing.assert_array_equal(gradient.numpy(), [0, 0, 0, 2, 4, 6, 8])
    through = lg.grad(lambda tree: lg.sum(lg.ravel_pytree(tree)[0] ** 2))({"a": lg.asarray([1.0, 2.0]), "b": 3.0})
    np.testing.assert_array_equal(through["a"].numpy(), [2.0, 4.0])
    assert lg.ravel_pytree({})[0].shape == (0,)


def test_data_classes_and_registered_classes_are_saved_and_loaded(tmp_path: Any) -> None:
    path = tmp_path / "model.npz"
    tree = {"layer": Dense(lg.ones(2), 0.5, 3), "line": Line(lg.zeros(1), 2.0, "edge"), "p": Point(lg.ones(1), [1])}
    lg.save(path, tree)
    like = {"layer": Dense(lg.zeros(2), 0.0, 4), "line": Line(lg.ones(1), 0.0, "other"), "p": Point(lg.zeros(1), [0])}
    loaded = lg.load(path, like=like)
    assert (loaded["layer"].power, loaded["line"].name) == (4, "other")  # static: they are those of `like`
    np.testing.assert_array_equal(lg.ravel_pytree(loaded)[0].numpy(), lg.ravel_pytree(tree)[0].numpy())
    assert lg.load(path)["p"]["y"] == [1]


@pytest.mark.parametrize(
    ("like", "message"),
    [
        ({"a": lg.zeros(2)}, r"`like` has no \['b'\]\[0\]"),
        ({"a": lg.zeros(2), "b": [1.0], "c": 1.0}, r"the file has no \['c'\]"),
        ({"a": lg.zeros(3), "b": [1.0]}, r"\['a'\] differs from `like`.*expected f32 of shape \(3,\)"),
        ({"a": lg.zeros(2, dtype=lg.float64), "b": [1.0]}, r"\['a'\] differs.*expected f64"),
    ],
)
def test_a_file_that_differs_from_like_is_an_error(tmp_path: Any, like: Any, message: str) -> None:
    lg.save(tmp_path / "model.npz", {"a": lg.ones(2), "b": [1.0]})
    with pytest.raises(UsageError, match=message):
        lg.load(tmp_path / "model.npz", like=like)


UNUSED: Any = (len, len)
NOT_A_CLASS: Any = 3
NOT_A_STRUCTURE: Any = [1.0]


@dataclass
class StaticArray:
    w: Any = lg.static_field()  # noqa: RUF009 (it makes a field)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lg.tree_leaves(StaticArray(lg.ones(2))), "the static field `w` of `StaticArray` must be hashable"),
        (lambda: lg.tree_leaves(StaticArray([1])), "must be hashable"),
        (lambda: lg.register_pytree(Line, *UNUSED), "`Line` is registered already"),
        (lambda: lg.register_pytree(dict, *UNUSED), "`dict` already has a meaning in pytrees"),
        (lambda: lg.register_pytree(NOT_A_CLASS, *UNUSED), "`register_pytree` takes a class"),
        (lambda: lg.tree_unflatten(NOT_A_STRUCTURE, [1.0]), r"it comes first: tree_unflatten\(structure, leaves\)"),
        (lambda: lg.tree_structure([1, 2]).unflatten([1]), "a value for each leaf.*expected 2 values, found 1"),
        (lambda: lg.tree_reduce(max, []), "has no leaves to combine"),
        (lambda: lg.tree_map(max, [1], {"a": 1}), r"expected \[\*\], found {'a': \*}"),
        (lambda: lg.ravel_pytree([1.0])[1](lg.ones(2)), "expected a vector of 1 elements"),
    ],
)
def test_wrong_uses_say_what_to_write(call: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()


def test_a_registration_that_returns_something_else_is_an_error() -> None:
    class Broken:
        pass

    flatten: Any = lambda broken: [1.0]  # noqa: E731 (to be untyped)
    lg.register_pytree(Broken, flatten, lambda static, children: Broken())
    with pytest.raises(UsageError, match=r"flatten` of `Broken`.*expected a tuple \(children, static value\)"):
        lg.tree_leaves(Broken())
