"""The functions that the random editor gives to blocks: few, so that their code is compiled once.

Each is applied to tensors by the engine and to `Val`s by the model. Values stay whole numbers below 101, so that every
order of operations gives the same bits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import livegrad as lg
from livegrad.ir.leaves import parameter
from tests.fuzz.engine_values import Failure, Misfit, Val, of_python

FEATURE = "animation_time"


@dataclass(frozen=True, eq=False)
class Body:
    """A function, what it is called with where nothing feeds a pin, and the kind of numbers it is for."""

    name: str
    function: Callable[..., Any]
    family: str
    outputs: tuple[str, ...] = ("result",)
    reads_time: bool = False
    may_give_nan: bool = False  # for sessions that watch for NaN

    @cached_property
    def inputs(self) -> Mapping[str, Any]:
        """The default of each pin; None: there is none."""
        found = inspect.signature(self.function).parameters
        return {name: None if one.default is one.empty else one.default for name, one in found.items()}

    @property
    def place(self) -> str:
        """Its line, as errors name it."""
        return f"engine_bodies.py:{self.function.__code__.co_firstlineno}:"

    @cached_property
    def wrapped(self) -> Any:
        """What a block is made of."""
        if self.reads_time:
            x = parameter(0, lg.f32)
            return lg.ir.Function("time", (x,), ((x + lg.context(FEATURE)) * 2.0,))
        return self.function

    def block(self, name: str) -> lg.Block:
        """A block of the engine."""
        if self.reads_time:
            return lg.block(self.wrapped, name=name, inputs=("x",))
        return lg.block(self.wrapped, name=name, outputs=self.outputs)

    def apply(self, inputs: Mapping[str, Val], time: float | None) -> dict[str, Val]:
        """What it computes, with NumPy."""
        if self.reads_time:
            (x,) = inputs.values()
            if not x.weak and x.type != ("float32", ()):
                raise Misfit("the time is added to one f32")
            if x.array.shape != ():
                raise Misfit("one number")
            if time is None:
                raise Failure("`{path}` reads the feature")
            return {"result": Val((x.array.astype("float32") + of_python(time).array.astype("float32")) * 2)}
        try:
            made = self.function(**inputs)
        except Failure as failure:
            raise Failure(*failure.args, self.place) from None
        made = made if isinstance(made, tuple) else (made,)
        return {name: of_python(value).strong() for name, value in zip(self.outputs, made, strict=True)}


BODIES = {
    body.name: body
    for body in (
        Body("mix", lambda x, y, gain=1.0: (x + y * gain) % 101, "float"),
        Body("shift", lambda x, y, gain=1.0: (x - y + gain) % 101, "float"),
        Body("blind", lambda x, y, gain=1.0: (y - gain * 2.0) % 101, "float"),
        Body("plain", lambda x=2.0: (x * 3.0) % 101, "float"),
        Body("plain2", lambda x=5.0: (x * 2.0 + 1.0) % 101, "float"),
        Body("split", lambda x, y, gain=1.0: ((x + y * gain) % 101, (x - gain) % 101), "float", ("result", "rest")),
        Body("other", lambda x, z, gain=2.0: (x * gain + z) % 101, "float"),
        Body("time", lambda x: x, "float", reads_time=True),
        Body("count", lambda x, y, gain=1: (x + y * gain) % 101, "int"),
        Body("uncount", lambda x, y, gain=2: (x - y * gain) % 101, "int"),
        Body("divide", lambda x, y, gain=1: ((x ^ 0) // (y ^ 0) + gain) % 101, "int"),
        Body("divide2", lambda x, y, gain=1: ((x ^ 1) // (y ^ 0) - gain) % 101, "int"),
        Body("triple", lambda x=2: (x * 3) % 101, "int"),
        Body("masked", lambda x, y, flag=True: (x & flag) ^ y, "bool"),
        Body("masked2", lambda x, y, flag=True: (x ^ flag) & y, "bool"),
        Body("flip", lambda x=True: x ^ True, "bool"),
        Body("less", lambda x, y, gain=1.0: x < y + gain, "float"),
        Body("zero", lambda x, y, gain=1.0: (x + (y * 0.0) / (y * 1.0) + gain) % 101, "float", may_give_nan=True),
        Body("zero2", lambda x, y, gain=1.0: (x - (y * 0.0) / (y * 2.0) - gain) % 101, "float", may_give_nan=True),
    )
}
# What decides about the next iteration of a While: it always ends.
COUNTDOWNS = {
    body.name: body
    for body in (
        Body("by_one", lambda n: (n - 1, n > 1), "int", ("left", "condition")),
        Body("by_two", lambda n: (n - 2, n > 2), "int", ("left", "condition")),
    )
}


MISTAKEN = Body("mistaken", lambda x, y, gain=1.0: x + None, "float")
