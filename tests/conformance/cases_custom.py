"""Cases of calls with custom derivatives, and of ops that order the steps of a program."""

from collections.abc import Iterator

from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.types import Tensor, Type, f32, f64, i64
from livegrad.ops.aggregate import get
from livegrad.ops.assignment import assign
from livegrad.ops.control import for_loop
from livegrad.ops.custom import custom_call, make_custom_call, recompute_call
from livegrad.ops.indexing import lookup
from livegrad.ops.members import members_call
from livegrad.ops.order import after, kept
from livegrad.ops.rules import zero
from livegrad.ops.transcendental import cos, sin
from tests.conformance.case import Case, make_case
from tests.conformance.tolerance import Tolerance

_FEW = Tolerance(64.0, lambda *_: 1.0)


def custom_cases() -> Iterator[Case]:
    for scalar in (f32, f64):
        for type in (scalar, Tensor(scalar, (7,))):
            yield from _custom_cases(type)
            yield from _order_cases(type)
        yield _members_case(Tensor(scalar, (7,)))


def _members_case(type: Tensor) -> Case:
    """The members of a batch, together and in turn."""

    def in_turn(x: Node, y: Node) -> Node:
        def member(i: Node, result: Node, x: Node, y: Node) -> Node:
            return assign(result, sin(lookup(x, i)) * lookup(y, i), i)

        body = trace(member, i64, type, type, type, name="member")
        loop = for_loop(constant(7, i64), zero(type), x, y, body=body, carried=1, reverse=False, independent=True)
        return get(loop, index=0)

    forms = {"function": trace(lambda x, y: sin(x) * y, type, type), "in_turn": trace(in_turn, type, type)}
    return make_case(members_call, lambda x, y: members_call(x, y, **forms), type, type, tolerance=_FEW)


def _order_cases(type: Type) -> Iterator[Case]:
    step = trace(lambda x, y: sin(x) * y, type, type, name="step")
    yield make_case(
        recompute_call,
        lambda x, y: recompute_call(recompute_call(x, y, function=step), y, function=step),
        type,
        type,
        tolerance=_FEW,
    )
    yield make_case(after, lambda x, y: sin(after(x, y)) * sin(x), type, type, tolerance=_FEW)
    yield make_case(kept, lambda x, y: sin(kept(x * y)), type, type, tolerance=_FEW)


def _custom_cases(type: Type) -> Iterator[Case]:
    function = trace(lambda x, y: x * sin(y), type, type, name="product")
    forward = trace(lambda x, y, dx, dy: dx * sin(y) + x * cos(y) * dy, *[type] * 4, name="forward")
    backward = trace(lambda x, y, ct: (ct * sin(y), x * cos(y) * ct), *[type] * 3, name="backward")
    for note, rules in (("forward", {"forward": forward}), ("backward", {"backward": backward})):
        yield make_case(
            custom_call,
            lambda x, y, rules=rules: make_custom_call(function, x, y, **rules) * x,
            type,
            type,
            note=note,
            tolerance=_FEW,
        )
