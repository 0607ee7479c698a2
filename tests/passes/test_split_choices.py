"""Min/max pruning: leaves that are decided in a box are skipped within it, and the sign is preserved."""

from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegrad as lg
from livegrad import ops
from livegrad.compiler import lower
from livegrad.ir.leaves import constant, parameter_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import f32
from livegrad.ir.walk import nodes_of
from livegrad.ops.control import cond, make_cond
from livegrad.ops.maps import map_over
from livegrad.passes.mask_choices import mask_bounds, mask_choices, undefined_values, words_of
from livegrad.passes.split_choices import Choices, Group, Nested, split_choices
from livegrad.runtime.cpu import compile_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.loops.expand import with_code

BOTH = (True, True)
EVERYTHING = 0xFFFFFFFF


def split(function: Function, **settings: Any) -> Choices:
    choices = split_choices(function, least_cost=0.0, **settings)
    assert choices is not None
    return choices


def discs(x: Node, y: Node, number: int) -> list[Node]:
    """Touching discs in a row."""
    return [ops.sqrt((x - 2.0 * k) * (x - 2.0 * k) + y * y) - 1.0 for k in range(number)]


# --- how choices are cut ---------------------------------------------------------------------------------------------


def test_a_chain_of_unions_becomes_leaves_of_about_one_cost_in_order() -> None:
    chain = lg.ir.trace(lambda x, y: reduce(ops.min, discs(x, y, 100)), f32, f32)
    choices = split(chain)
    leaves = list(choices.root.leaves())
    assert [leaf.bit for leaf in leaves] == list(range(len(leaves)))
    assert 40 <= len(leaves) <= 64
    assert [step.value for leaf in leaves for step in leaf.steps] == list(range(100))
    assert max(len(leaf.steps) for leaf in leaves) <= 3
    assert words_of(choices) == 2
    assert len(choices.root.parts) <= 8


def test_a_shape_that_is_added_to_and_cut_in_turns_is_one_way_of_both_kinds() -> None:
    def turns(x: Node, y: Node) -> Node:
        found = discs(x, y, 1)[0]
        for k, disc in enumerate(discs(x, y, 60)[1:]):
            found = ops.min(found, disc) if k % 2 else ops.max(found, -disc)
        return found

    choices = split(lg.ir.trace(turns, f32, f32), most=32)
    assert not any(isinstance(part, Nested) for part in choices.root.parts)
    assert {"min", "max"} == set(choices.root.kinds)
    assert 16 <= choices.leaf_count <= 32


def test_large_members_are_cut_too_and_a_negated_union_is_an_intersection() -> None:
    def cut(x: Node, y: Node) -> Node:
        holes = reduce(ops.min, discs(x, y + 1.0, 40))
        return ops.max(reduce(ops.min, discs(x, y, 40)), -holes)

    choices = split(lg.ir.trace(cut, f32, f32))

    def nested(group: Group) -> list[str]:
        return [part.kind for part in group.parts if isinstance(part, Nested)] + [
            kind for part in group.parts if isinstance(part, Group) for kind in nested(part)
        ]

    # The holes are members of the one max; the bodies are a min, which either begins or stands as a step.
    kinds = choices.root.kinds
    assert kinds.count("max") >= 40
    assert nested(choices.root) == [] or nested(choices.root) == ["max"]


def test_functions_that_are_small_or_choose_nothing_are_left_alone() -> None:
    assert split_choices(lg.ir.trace(lambda x, y: reduce(ops.min, discs(x, y, 5)), f32, f32)) is None
    assert split_choices(lg.ir.trace(lambda x: sum((ops.sin(x * k) for k in range(200)), x), f32)) is None
    assert split_choices(lg.ir.trace(lambda x: ops.min(x, 1.0), f32), least_cost=0.0) is None


def test_what_leaves_share_is_computed_once_and_never_when_none_is_asked_for() -> None:
    def shared(x: Node, y: Node) -> Node:
        costly = ops.sin(ops.cos(x) * y)
        return reduce(ops.min, [costly - float(k) if k in (3, 4) else disc for k, disc in enumerate(discs(x, y, 8))])

    masked = mask_choices(split(lg.ir.trace(shared, f32, f32), most=8))
    conds = [node for node in nodes_of(masked) if node.op.name == "cond"]
    assert conds
    assert sum(node.op.name == "sin" for node in nodes_of(masked)) == 1
    alone = mask_choices(split(lg.ir.trace(lambda x, y: reduce(ops.min, discs(x, y, 8)), f32, f32), most=8))
    assert not any(node.op.name == "sqrt" for node in nodes_of(alone))


# --- signs -----------------------------------------------------------------------------------------------------------

ATOMS = st.one_of(
    st.tuples(st.just("plane"), st.integers(-2, 2), st.integers(-2, 2), st.integers(-2, 2)),
    st.tuples(st.just("disc"), st.integers(-2, 2), st.integers(-2, 2), st.integers(1, 2)),
    st.tuples(st.just("number"), st.sampled_from([0.0, -0.0, 1.0, -1.0])),
    st.tuples(st.just("root"), st.integers(-2, 2)),
    st.tuples(st.just("quotient"), st.integers(-2, 2)),
)
KINDS = st.sampled_from(["min", "max", "minimum", "maximum"])


@st.composite
def trees(draw: st.DrawFn) -> Any:
    """Atoms, combined two neighbours at a time in random order, from left and right chains to balanced trees."""
    parts: list[Any] = draw(st.lists(ATOMS, min_size=5, max_size=20))
    while len(parts) > 1:
        place = draw(st.integers(0, len(parts) - 2) | st.just(0))
        joined = (draw(KINDS), parts[place], parts[place + 1])
        parts[place : place + 2] = [("neg", joined) if draw(st.booleans()) else joined]
    return parts[0]


def built(tree: Any, x: Node, y: Node) -> Node:
    match tree:
        case ("plane", a, b, c):
            return x * float(a) + y * float(b) + float(c)
        case ("disc", a, b, c):
            return ops.sqrt((x - float(a)) * (x - float(a)) + (y - float(b)) * (y - float(b))) - float(c)
        case ("number", value):
            return x - x + value if value else x - x
        case ("root", a):
            return ops.sqrt(x + float(a)) - 1.0
        case ("quotient", a):
            return 1.0 / (y - float(a)) + x / (x - 1.0)
        case ("neg", inner):
            return -built(inner, x, y)
    kind, first, second = tree
    return getattr(ops, kind)(built(first, x, y), built(second, x, y))


def run(function: Function, *arguments: Any) -> tuple[Any, ...]:
    """The function at many points at once, both branches of every cond: op by op, as the reference has them."""
    values: dict[Node, Any] = {}
    for node in nodes_of(function):
        operands = [values[operand] for operand in node.operands]
        if node.op is parameter_op:
            values[node] = arguments[node.attribute("index")]
        elif node.op is cond:
            asked, *given = operands
            then, otherwise = (run(node.attribute(name), *given) for name in ("then", "otherwise"))
            found: list[Any] = [np.where(asked, a, b) for a, b in zip(then, otherwise, strict=True)]
            values[node] = found if len(found) > 1 else found[0]
        elif node.op is ops.get:
            values[node] = operands[0][node.attribute("index")]
        else:
            assert node.op.evaluate is not None
            values[node] = node.op.evaluate(*operands, **dict(node.attributes))
    return tuple(values[result] for result in function.results)


def check_signs(function: Function, *, levels: int = 5) -> int:
    """Halves boxes, as those do who look for a surface; gives how many leaves were left out within undecided boxes."""
    choices = split_choices(function, most=16, least_cost=0.0)
    if choices is None:
        return 0
    bounds = mask_bounds(choices, BOTH)
    masked = mask_choices(choices, undefined_values(choices, BOTH))
    left_out = 0
    x, y = (axis.reshape(-1) for axis in np.meshgrid(*[np.arange(-4.0, 4.0, 2.0)] * 2))
    words: list[Any] = [np.full(len(x), EVERYTHING, np.uint32)]
    for level in range(levels):
        side = 2.0 / (1 << level)
        low, high, *left = run(bounds, *[end.astype(np.float32) for end in (x, x + side, y, y + side)], *words)
        assert not any((new & ~old).any() for new, old in zip(left, words, strict=True))
        # Corners, so that planes through whole numbers are met exactly, and points between.
        for across, up in ((0, 0), (0, 1), (1, 0), (1, 1), (0.5, 0.5), (0.25, 0.875)):
            point = (x + across * side).astype(np.float32), (y + up * side).astype(np.float32)
            (plain,) = run(function, *point)
            (value,) = run(masked, *point, *left)
            undecided = ~((high < 0) | (low > 0))
            assert (plain[high < 0] < 0).all()
            assert not (plain[low > 0] < 0).any()
            known = undecided & ~np.isnan(value)
            np.testing.assert_array_equal(value[known] < 0, plain[known] < 0)
        chosen = np.flatnonzero(undecided)
        left_out += int(choices.leaf_count * len(chosen) - sum(np.bitwise_count(word[chosen]).sum() for word in left))
        half = side / 2
        x = (x[chosen, None] + [0, half, 0, half]).reshape(-1)
        y = (y[chosen, None] + [0, 0, half, half]).reshape(-1)
        words = [np.repeat(word[chosen], 4) for word in left]
    return left_out


@settings(max_examples=40, deadline=None)
@given(trees())
@np.errstate(all="ignore")
def test_signs_stay_within_boxes_zeros_and_undefined_members_included(tree: Any) -> None:
    check_signs(lg.ir.trace(lambda x, y: built(tree, x, y), f32, f32))


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_shapes_that_are_added_and_cut_keep_their_signs(turn: int) -> None:
    def turns(x: Node, y: Node) -> Node:
        found = discs(x + 4.0, y, 1)[0]
        for k in range(1, 16):
            disc = discs(x + 4.0 - 0.5 * k, y + 0.5 * (k % 3), 1)[0]
            found = ops.max(found, -disc) if k % turn else ops.min(found, disc)
        return found

    assert check_signs(lg.ir.trace(turns, f32, f32)) > 1000


def test_a_member_that_may_be_undefined_decides_nothing() -> None:
    """The plain minimum is NaN left of 0, whatever the other members are: no box there is inside."""
    chain = lg.ir.trace(lambda x: reduce(ops.min, [ops.sqrt(x), *[x - 3.0 - k for k in range(8)]]), f32)
    choices = split(chain, most=8)
    assert undefined_values(choices, (True,)) == {0}
    bounds, masked = mask_bounds(choices, (True,)), mask_choices(choices, undefined_values(choices, (True,)))
    least, most, words = lg.ir.evaluate(bounds, np.float32(-2), np.float32(-1), np.uint32(EVERYTHING))
    assert np.isnan([least, most]).all()
    assert np.isnan(lg.ir.evaluate(masked, np.float32(-1.5), words))
    assert lg.ir.evaluate(bounds, np.float32(1), np.float32(2), np.uint32(EVERYTHING))[1] < 0


# --- work ------------------------------------------------------------------------------------------------------------


def test_smaller_boxes_ask_for_fewer_leaves() -> None:
    chain = lg.ir.trace(lambda x, y: reduce(ops.min, discs(x, y, 64)), f32, f32)
    bounds = compile_function(map_over(mask_bounds(split(chain), BOTH)))
    asked = []
    words = [np.full(1, EVERYTHING, np.uint32)] * 2
    for width in (128, 32, 8, 2):
        corners = [np.array([value], np.float32) for value in (50.5 - width / 4, 50.5 + width / 4, -0.5, 0.5)]
        _, _, *words = bounds(*corners, *words)
        asked.append(sum(int(word[0]).bit_count() for word in words))
    assert asked[0] > 20
    assert asked[-1] <= 3
    assert asked == sorted(asked, reverse=True)


def test_a_hole_inside_of_a_body_asks_for_no_part_of_the_body() -> None:
    def plate(x: Node, y: Node) -> Node:
        return ops.max(reduce(ops.min, discs(x * 4.0, y, 30)), -(ops.sqrt(x * x + y * y) - 0.5))

    choices = split(lg.ir.trace(plate, f32, f32))
    corners = [np.float32(value) for value in (0.45, 0.55, -0.05, 0.05)]
    low, high, word = lg.ir.evaluate(mask_bounds(choices, BOTH), *corners, np.uint32(EVERYTHING))
    assert low < 0 < high
    assert int(word).bit_count() == 1


# --- on the processor ------------------------------------------------------------------------------------------------


def test_all_leaves_together_give_the_bits_of_the_function() -> None:
    """Products that members share are rounded as in the function itself, where they are not fused with one sum."""

    def members(x: Node, y: Node) -> Node:
        found = [ops.length(lg.ops.make_vector(x - 0.3, y * 1.7)) - 0.1 * k for k in range(6)]
        found += [x * x + y * (0.1 * k) for k in range(6)] + [x * 1.7 + 0.1 * k for k in range(6)]
        found += [(x * 1.7 + 0.3) * (x * x) - y * y for _ in range(2)] + [x * y - x * 1.7, y * 1.7 - x * y]
        return reduce(ops.min, found)

    function = lower(lg.ir.trace(members, f32, f32))
    choices = split(function, most=64)
    assert all(len(leaf.steps) == 1 for leaf in choices.root.leaves())
    expanded = Choices(choices.name, with_code(choices.values, CPU), choices.root)
    masked = compile_function(map_over(mask_choices(expanded, undefined_values(choices, BOTH))))
    plain = compile_function(map_over(function))
    x, y = np.random.default_rng(0).uniform(-2, 2, (2, 4096)).astype(np.float32)
    every = np.full(len(x), EVERYTHING, np.uint32)
    np.testing.assert_array_equal(masked(x, y, every), np.minimum(plain(x, y), np.float32(1)))


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_a_branch_that_replaces_a_value_is_skipped_lane_by_lane(share: float) -> None:
    def costly(x: Node) -> tuple[Node, Node]:
        for _ in range(6):
            x = ops.sin(x) + ops.exp(x * 0.1)
        return x, -x

    def either(asked: Node, x: Node) -> Node:
        made = make_cond(asked, costly, lambda x: (x, constant(2.0, f32)), x)
        return ops.get(made, index=0) * ops.get(made, index=1)

    function = lg.ir.trace(either, lg.bool_, f32)
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, 1000).astype(np.float32)
    asked = generator.random(1000) < share
    found = compile_function(map_over(function))(asked, x)
    expected = [lg.ir.evaluate(function, bool(a), b) for a, b in zip(asked[:100], x[:100], strict=True)]
    np.testing.assert_allclose(found[:100], expected, rtol=1e-5)
    np.testing.assert_array_equal(found[~asked], 2 * x[~asked])
