"""Cases of calls that say how they are to be differentiated, and of what orders the steps of a program."""

from collections.abc import Iterator

from livegrad.ir.function import trace
from livegrad.ir.types import Tensor, Type, f32, f64
from livegrad.ops.custom import custom_call, make_custom_call, recompute_call
from livegrad.ops.order import after, kept
from livegrad.ops.transcendental import cos, sin
from tests.conformance.case import Case, make_case
from tests.conformance.tolerance import Tolerance

_FEW = Tolerance(64.0, lambda *_: 1.0)


def custom_cases() -> Iterator[Case]:
    for scalar in (f32, f64):
        for type in (scalar, Tensor(scalar, (7,))):
            yield from _custom_cases(type)
            yield from _order_cases(type)


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
