"""Graphs for the soak: a description that is plain data, and an engine made from it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import livegrad as lg
from livegrad.ir.dimension import Dimension
from livegrad.ir.types import Tensor, f32
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
    """The same on a GPU, like another library: launches a kernel on the captured stream."""

    def call(stream: int, x: Any, gain: Any, result: Any) -> None:
        addresses = [array.__cuda_array_interface__["data"][0] for array in (x, result)]
        slots = np.array([*addresses, 0, np.prod(x.shape)], np.int64)
        slots[2:3].view(np.float64)[0] = gain
        pointers = np.array([slots.ctypes.data], np.uint64)
        function = load_function(_KERNELS, "soak", symbol)
        check(driver_module.driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, pointers.ctypes.data, 0))

    return call


CALLS = {"cpu": [scale, add], "cuda": [kernel_call("scale"), kernel_call("add")]}


def calls_of(engine: Engine) -> list[Callable[..., None]]:
    """Library calls on the engine's memory."""
    return CALLS[engine.executor.name]


@dataclass
class Described:
    """One block of the description: its kind, its body, its numbers, and the sources of its other inputs."""

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


def make_blocks(engine: Engine, name: str, described: Described) -> dict[str, Any]:
    """Creates the blocks of a described block, by role."""
    if described.kind == "call":
        added = engine.add(captured_block(calls_of(engine)[described.body], outputs={"result": "same(0)"}, name=name))
        return {"in": added, "out": added["result"], "inner": added}
    if described.kind == "pair":
        writers = [
            engine.add(append_block(lambda x, limit=0.0: (x > limit, x), capacity=6, name=f"{name}_above")),
            engine.add(append_block(lambda x, limit=0.0: (x < limit, -x), capacity=6, name=f"{name}_below")),
        ]
        pool = engine.add(AppendBuffer(name, capacity=7, writers=("above", "below")))
        for writer, pin in zip(writers, ("above", "below"), strict=True):
            engine.connect(writer["values"], pool[pin])
        return {"in": writers, "out": pool["values"], "inner": writers[0]}
    if described.kind == "loss":
        added = engine.add(block(lambda x, gain=1.0: lg.sum(x * x) * gain, name=name, inputs={"x": ROW}))
        slope = engine.add(lg.grad(of=added, by=[added["x"], added["gain"]], name=f"{name}_slope"))
        return {"in": added, "out": slope["x"], "inner": added, "also": slope}
    inner = block(
        BODIES[described.kind][described.body],
        name=name if described.kind == "mix" else "inner",
        inputs={"x": ROW, "y": ROW},
    )
    if described.kind == "mix":
        engine.add(inner)
        return {"in": inner, "out": inner["result"], "inner": inner}
    body = Composite("body")
    body.graph.add(inner)
    for pin in (inner["x"], inner["y"], inner["result"]):
        body.expose(pin)
    region = For(name, body, {"x": "result"}) if described.kind == "loop" else If(name, body)
    engine.add(region)
    return {"in": region, "out": region["result"], "inner": inner}


def set_number(engine: Engine, blocks: dict[str, Any], pin: str, value: Any) -> None:
    inner = blocks["inner"]
    target = blocks["in"] if pin in ("count", "condition") else inner
    engine.graph_of(target).set(target[pin], value)


def feed(
    engine: Engine, blocks: dict[str, dict[str, Any]], states: dict[str, Any], name: str, pin: str, what: Any
) -> None:
    """Connects, sets or binds one input."""
    target = blocks[name]["in"]
    for each in target if isinstance(target, list) else [target]:
        if isinstance(what, ExternalBuffer):
            engine.bind(each[pin], what)
        elif isinstance(what, np.ndarray):
            engine.set(each[pin], what)
        else:
            engine.connect(states[what] if what in states else blocks[what]["out"], each[pin])


def realise(
    description: DescribedGraph, backend: str, values: dict[str, np.ndarray], reuse_memory: bool = False
) -> tuple[Engine, dict, dict]:
    """A fresh engine of a description, with the states as they are."""
    engine = Engine(backend, reuse_memory=reuse_memory)
    engine.set_feature("animation_time", description.time)
    states = {name: engine.add(State(name, values[name])) for name in description.states}
    blocks = {name: make_blocks(engine, name, described) for name, described in description.blocks.items()}
    for name, described in description.blocks.items():
        for pin, value in described.numbers.items():
            set_number(engine, blocks[name], pin, value)
        for pin, what in described.feeds.items():
            feed(engine, blocks, states, name, pin, what)
    for name, following in description.states.items():
        engine.connect(blocks[following]["out"], states[name]["next"])
    return engine, blocks, states
