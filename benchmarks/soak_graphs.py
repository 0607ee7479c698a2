"""Graphs for the soak: a description that is plain data, and an engine made from it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import livegrad as lg
from livegrad.ir.types import Dimension, Tensor, f32
from livegrad.live.blocks import append_block, block, captured_block
from livegrad.live.engine import Engine
from livegrad.live.graph.append_buffer import AppendBuffer
from livegrad.live.graph.block import State
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.regions import For, If
from livegrad.live.graph.sources import ExternalBuffer
from livegrad.runtime.cuda import driver as driver_module
from livegrad.runtime.cuda.driver import check
from livegrad.runtime.cuda.modules import load_function

ROW = Tensor(f32, (Dimension.symbol("n"),))


def bounded(x: Any) -> Any:
    return lg.clip(x, -64.0, 64.0)


BODIES: dict[str, list[Callable[..., Any]]] = {
    "mix": [
        lambda x, y, gain=1.0: bounded(x + y * gain),
        lambda x, y, gain=1.0: bounded(x - y + gain),
        lambda x, y, gain=1.0: bounded(y * 0.5 - gain),
        lambda x, y, gain=1.0: bounded(x + gain * lg.contexts.context_tensor("animation_time")),
    ],
    "loop": [lambda x, y, gain=1.0: bounded(x * 0.5 + y + gain), lambda x, y, gain=1.0: bounded(y - x * gain)],
    "gate": [lambda x, y, gain=1.0: bounded(x + gain + y), lambda x, y, gain=1.0: bounded(x * gain - y)],
}


def scale(stream: Any, x: Any, gain: Any, result: Any) -> None:
    np.multiply(x, gain, out=result)


def add(stream: Any, x: Any, gain: Any, result: Any) -> None:
    np.add(x, gain, out=result)


_KERNELS = """
struct Arguments { const float* x; float* result; double gain; long long count; };
extern "C" __global__ void scale(const __grid_constant__ Arguments a)
{
    for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += gridDim.x * blockDim.x)
        a.result[i] = a.x[i] * (float)a.gain;
}
extern "C" __global__ void add(const __grid_constant__ Arguments a)
{
    for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += gridDim.x * blockDim.x)
        a.result[i] = a.x[i] + (float)a.gain;
}
"""


def kernel_call(symbol: str) -> Callable[..., None]:
    """The same on a GPU, as another library would do it: a kernel that is launched on the stream that is captured."""

    def call(stream: int, x: Any, gain: Any, result: Any) -> None:
        addresses = [own.__cuda_array_interface__["data"][0] for own in (x, result)]
        words = np.array([*addresses, 0, np.prod(x.shape)], np.int64)
        words[2:3].view(np.float64)[0] = gain
        pointers = np.array([words.ctypes.data], np.uint64)
        function = load_function(_KERNELS, "soak", symbol)
        check(driver_module.driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, pointers.ctypes.data, 0))

    return call


CALLS = {"cpu": [scale, add], "cuda": [kernel_call("scale"), kernel_call("add")]}


def calls_of(engine: Engine) -> list[Callable[..., None]]:
    """Library calls that know the engine's memory."""
    return CALLS[engine.executor.name]


@dataclass
class Described:
    """One block of the description: what it is, which body it has, its numbers, and what feeds its other inputs."""

    kind: str  # mix, loop, gate, call, pair (of writers of one append buffer), loss
    body: int = 0
    numbers: dict[str, Any] = field(default_factory=dict)
    feeds: dict[str, Any] = field(default_factory=dict)  # a name, an array, or an external buffer


@dataclass
class DescribedGraph:
    blocks: dict[str, Described] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)  # which block becomes the state's next value
    size: int = 3
    time: float = 0.0


# --- from a description to an engine -------------------------------------------------------------------------------


def make_blocks(engine: Engine, name: str, own: Described) -> dict[str, Any]:
    """The blocks that a described one stands for, by what they are to others."""
    if own.kind == "call":
        made = engine.add(captured_block(calls_of(engine)[own.body], outputs={"result": "same(0)"}, name=name))
        return {"in": made, "out": made["result"], "inner": made}
    if own.kind == "pair":
        writers = [
            engine.add(append_block(lambda x, limit=0.0: (x > limit, x), capacity=6, name=f"{name}_above")),
            engine.add(append_block(lambda x, limit=0.0: (x < limit, -x), capacity=6, name=f"{name}_below")),
        ]
        pool = engine.add(AppendBuffer(name, capacity=7, writers=("above", "below")))
        for writer, pin in zip(writers, ("above", "below"), strict=True):
            engine.connect(writer["values"], pool[pin])
        return {"in": writers, "out": pool["values"], "inner": writers[0]}
    if own.kind == "loss":
        made = engine.add(block(lambda x, gain=1.0: lg.sum(x * x) * gain, name=name, inputs={"x": ROW}))
        slope = engine.add(lg.grad(of=made, by=[made["x"], made["gain"]], name=f"{name}_slope"))
        return {"in": made, "out": slope["x"], "inner": made, "also": slope}
    inner = block(BODIES[own.kind][own.body], name=name if own.kind == "mix" else "inner", inputs={"x": ROW, "y": ROW})
    if own.kind == "mix":
        engine.add(inner)
        return {"in": inner, "out": inner["result"], "inner": inner}
    body = Composite("body")
    body.graph.add(inner)
    for pin in (inner["x"], inner["y"], inner["result"]):
        body.expose(pin)
    region = For(name, body, {"x": "result"}) if own.kind == "loop" else If(name, body)
    engine.add(region)
    return {"in": region, "out": region["result"], "inner": inner}


def set_number(engine: Engine, made: dict[str, Any], pin: str, value: Any) -> None:
    inner = made["inner"]
    target = made["in"] if pin in ("count", "condition") else inner
    engine.graph_of(target).set(target[pin], value)


def feed(
    engine: Engine, made: dict[str, dict[str, Any]], states: dict[str, Any], name: str, pin: str, what: Any
) -> None:
    """Connects, sets or binds one input."""
    target = made[name]["in"]
    for own in target if isinstance(target, list) else [target]:
        if isinstance(what, ExternalBuffer):
            engine.bind(own[pin], what)
        elif isinstance(what, np.ndarray):
            engine.set(own[pin], what)
        else:
            engine.connect(states[what] if what in states else made[what]["out"], own[pin])


def realise(
    description: DescribedGraph, backend: str, values: dict[str, np.ndarray], reuse_memory: bool = False
) -> tuple[Engine, dict, dict]:
    """A fresh engine of a description, with the states as they are."""
    engine = Engine(backend, reuse_memory=reuse_memory)
    engine.set_feature("animation_time", description.time)
    states = {name: engine.add(State(name, values[name])) for name in description.states}
    made = {name: make_blocks(engine, name, own) for name, own in description.blocks.items()}
    for name, own in description.blocks.items():
        for pin, value in own.numbers.items():
            set_number(engine, made[name], pin, value)
        for pin, what in own.feeds.items():
            feed(engine, made, states, name, pin, what)
    for name, following in description.states.items():
        engine.connect(made[following]["out"], states[name]["next"])
    return engine, made, states
