"""Random calls with one argument that a function can hardly mean: they work, or are refused at the caller's line.

Every public function takes part, with the methods of parts, assemblies, graphs, tensors, engines and composites, what
transforms give, and typed functions. The oracle is a rule: nothing but a `LivegradError` that names this file may leave
a call.
"""

from __future__ import annotations

import contextlib
import inspect
import random
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import numpy as np

import livegrad as lg
from livegrad.ir.source_lines import ambient
from livegrad.public_names import GROUPS

SHORT = 8
CALLS = 60  # of each seed
# They end the process's caches, write files, run code, or run for as long as they are asked to.
LEFT_OUT = {
    "clear_caches", "load", "print", "record", "replay", "run_source", "save", "save_3mf", "save_animation",
    "save_mesh", "save_png", "save_stl", "save_svg", "set_cache_budget", "reset_stats", "register_feature",
    "register_with_einops",
}  # fmt: skip


def things() -> dict[str, Any]:
    """What nobody expects. The class is new for each seed, for a call may turn it into a struct or an interface."""

    class Thing:
        def __repr__(self) -> str:
            return "<thing>"

    return {"a thing": Thing(), "a class": Thing, "objects": np.array([Thing()])}


@lg.differentiable
def product(x: float, y: lg.f32) -> float:
    return x * y


@lg.differentiable
def reach(p: lg.vec3, weights: list[float]) -> float:
    return lg.length(p) * sum(weights)


def square(x: Any) -> Any:
    return lg.sum(x * x)


PART: Any = lg.shapes.sphere(lg.shapes.Parameter("radius", 1.0)).part(((-2, -2, -2), (2, 2, 2)), "ball")
GOOD: Any = lg.asarray([[2.0, 1.0], [1.0, 3.0]])
JUNK: dict[str, Any] = {
    "None": None, "text": "a", "{}": {}, "{a: 1}": {"a": 1.0}, "[]": [], "[None]": [None],
    "a function": lambda *arguments: arguments, "2**70": 2**70, "10**400": [10**400],
    "nan": float("nan"), "inf": float("inf"), "-1": -1, "1.5": 1.5, "1j": 1j, "True": True, "a type": lg.f32,
    "(1, 2, 3)": (1, 2, 3), "ragged": [[1], [1, 2]], "bytes": b"x", "a set": {1, 2}, "texts": np.array(["a"]),
    "an array": np.ones((2, 2)), "no elements": lg.zeros((0,)), "complex": lg.ones((2, 2), dtype=lg.complex64),
    "truths": lg.ones((2, 2), dtype=lg.bool), "integers": lg.ones((2, 2), dtype=lg.int64), "a cube": lg.ones((2, 3, 4)),
    "a shape": lg.shapes.sphere(1.0), "a part": PART,
}  # fmt: skip


def small_graph() -> dict[str, Any]:
    """An engine with a little of everything, and an argument that is good for each parameter; new for each call."""
    engine = lg.Engine()
    double = engine.add(lg.block(lambda x=1.0: x * 2.0, name="double"))
    plus = engine.add(lg.block(lambda x: x + 1.0, name="plus"))
    engine.connect(double, plus["x"])
    inside = lg.Composite("inside")
    inner = inside.graph.add(lg.block(lambda x=1.0, y=2.0: x * y, name="inner"))
    inside.expose(inner["x"]), inside.expose(inner["result"])
    engine.add(inside)
    body = lg.Composite("body")
    step = body.graph.add(lg.block(lambda x: (x * 2.0, x < 9.0), name="step", outputs=("result", "condition")))
    body.expose(step["x"]), body.expose(step["result"]), body.expose(step["condition"])
    state = engine.add(lg.State("state", 0.0))
    engine.connect(double, state["next"])
    engine.step()
    return {
        "engine": engine, "graph": engine.graph, "composite": inside, "block": plus, "target": plus["x"],
        "source": double, "pin": double["result"], "state": state, "value": 3.0, "feature": "animation_time",
        "body": body, "external": np.ones(3), "watch": None, "begin": None, "name": "more", "then": body,
        "running": False, "what": square, "initial": 0.0, "inputs": ("x",), "outputs": ("result",), "shapes": {},
        "backend": "cpu", "reuse_memory": False, "otherwise": body, "carried": {"x": "result"}, "capacity": 4,
        "writers": ("a",), "path": "a.jsonl", "trust": True, "function": lambda x: (x > 0.0, x), "cases": body,
        "level": "off", "journal": None,
    }  # fmt: skip


def plain_body() -> lg.Composite:
    """A body that exposes an input and an output."""
    body = lg.Composite("plain")
    inner = body.graph.add(lg.block(lambda x=1.0: x * 2.0, name="inner"))
    body.expose(inner["x"]), body.expose(inner["result"])
    return body


# Where the name of a parameter does not say what is good for it.
ELSEWHERE: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "composite.expose": lambda parts: {"pin": parts["composite"].graph.blocks["inner"]["y"]},
    "engine.add": lambda parts: {"block": lg.block(square)},
    "graph.add": lambda parts: {"block": lg.block(square)},
    "engine.edit": lambda parts: {"body": parts["source"].body},
    "graph.edit": lambda parts: {"body": parts["source"].body},
    "graph.source_of": lambda parts: {"pin": parts["target"]},
    "lg.If": lambda parts: {"then": plain_body()},
    "lg.IfElse": lambda parts: {"then": plain_body(), "otherwise": plain_body()},
    "lg.live.replay": lambda parts: {"backend": None},
}
# Of the engine's own use: what they are given comes from there.
INTERNAL = {
    "default_of", "inner_output", "inner_graphs", "pins_behind", "pin_named", "graph_of", "observe", "follow",
    "follow_pins", "reorder",
}  # fmt: skip
MADE_FOR_ENGINES = (
    "Composite", "Engine", "For", "If", "IfElse", "State", "Switch", "While", "block", "live.AppendBuffer",
    "live.append_block", "live.record", "live.replay",
)  # fmt: skip


def call_in_graph(owner: str, method: str, names: tuple[str, ...]) -> Callable[..., Any]:
    """A method of something in a small graph, or what makes something for one; a frame follows.

    The argument that stands for a good one becomes what is good for the parameter.
    """

    def call(*arguments: Any) -> None:
        parts = small_graph()
        parts |= ELSEWHERE.get(f"{owner}.{method}", lambda parts: {})(parts)
        given = {name: parts[name] if own is GOOD else own for name, own in zip(names, arguments, strict=True)}
        by_position = [given.pop(name) for name in names if "cases" in names]
        result = attrgetter(method)(parts.get(owner, lg))(*by_position, **given)
        if isinstance(result, lg.live.Recording):
            result.close()
        if isinstance(result, lg.Block) and result.home is None:
            parts["engine"].add(result)
        parts["engine"].step()  # what is wrong with a graph is a problem of the frame

    return call


def of_engines() -> dict[str, tuple[Callable[..., Any], int, tuple[str, ...]]]:
    """The methods of engines, graphs and composites, and what is made for them."""
    parts = small_graph()
    chosen = [
        (owner, method)
        for owner in ("engine", "graph", "composite")
        for method in dir(parts[owner])
        if not method.startswith("_") and inspect.ismethod(getattr(parts[owner], method)) and method not in INTERNAL
    ]
    found = {}
    for owner, method in [*chosen, *(("lg", name) for name in MADE_FOR_ENGINES)]:
        names = tuple(inspect.signature(attrgetter(method)(parts.get(owner, lg))).parameters)
        found[f"{owner}.{method}, in a graph"] = call_in_graph(owner, method, names), len(names), ()
    return found


def subjects() -> dict[str, tuple[Callable[..., Any], int, tuple[str, ...]]]:
    """What is called: by name, with the number of arguments by position, and the arguments by name."""
    found: dict[str, Any] = {}
    spaces = {"lg": (lg, lg.__all__), **{f"lg.{s}": (m := getattr(lg, s), m.__all__) for s in NAMESPACES}}
    for space, (module, names) in spaces.items():
        found |= {f"{space}.{name}": getattr(module, name) for name in names if name not in LEFT_OUT}
    assembly = lg.implicit.assembly_of_part(PART)
    for label, owner in {
        "part": PART,
        "assembly": assembly,
        "tensor": GOOD,
        "context graph": lg.ContextGraph(),
    }.items():
        found |= {f"{label}.{name}": getattr(owner, name) for name in dir(owner) if not name.startswith("_")}
    found = {name: value for name, value in found.items() if inspect.isroutine(value)}
    for transform in (lg.grad, lg.value_and_grad, lg.hessian, lg.jacfwd, lg.jacrev, lg.vmap, lg.jit, lg.checkpoint):
        found[f"{transform.__name__}(square)"] = lambda x, transform=transform: transform(square)(x)
    found["product"] = lambda x, y: product(x, y)
    found["reach"] = lambda p, weights: reach(p, weights)
    found["bwd_diff(product)"] = lambda x, y, d: lg.bwd_diff(product)(x, y, d)
    found["minimize"] = lambda x: lg.optim.minimize(square, x, steps=1)
    found["what jit gives"] = lambda result: lg.jit(lambda x: result)(GOOD)
    found["what grad gives"] = lambda result: lg.grad(lambda x: result)(GOOD)
    return {name: (value, *_shape(value)) for name, value in found.items()} | of_engines()


NAMESPACES = ("linalg", "fft", "nn", "random", "optim", "shapes", *GROUPS)


def _shape(value: Callable[..., Any]) -> tuple[int, tuple[str, ...]]:
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return 1, ()
    own = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.name != "transform"]
    needed = sum(p.default is p.empty for p in own) or int(any(p.kind is p.VAR_POSITIONAL for p in parameters))
    named = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
    return needed, named


_subjects: dict[str, Any] = {}


def run_one(seed: int) -> Mapping[str, int]:
    """Some calls; in a folder of their own, for paths are among what they may be given."""
    if not _subjects:
        _subjects.update(subjects())
    chance, counts, junk_values = random.Random(seed), Counter[str](), JUNK | things()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(CALLS):
            name = chance.choice(sorted(_subjects))
            function, needed, named = _subjects[name]
            place, junk = chance.randrange(needed + len(named) + 1), chance.choice(list(junk_values))
            arguments, keywords = [GOOD] * needed, {}
            if place < needed:
                arguments[place] = junk_values[junk]
            elif place < needed + len(named):
                keywords[named[place - needed]] = junk_values[junk]
            label = f"{name}, argument {place}: {junk}"
            counts[outcome(label, function, arguments, keywords)] += 1
            assert ambient.table is ambient.origins is None, f"{label} left a pass open"
    return counts


def outcome(label: str, function: Callable[..., Any], arguments: list[Any], keywords: dict[str, Any]) -> str:
    """Whether a call works or is refused; an error of Python's or NumPy's from inside is a failure."""
    try:
        result = function(*arguments, **keywords)
        if isinstance(result, lg.Tensor):
            result.numpy()
    except lg.LivegradError as error:
        # An error of a file or text that is read has its place there; one that ends a run may be of no line.
        if error.where is None and not isinstance(error, lg.KernelCheckError | lg.live.EngineError):
            raise AssertionError(f"{label} is nowhere: {error}") from error
        return "refused"
    except (MemoryError, OSError):
        return "refused"
    except Exception as error:
        inside = traceback.extract_tb(error.__traceback__)[-1].filename
        if inside == __file__ or "/tests/" in inside:
            return "refused"  # the call itself does not fit the signature
        text = "".join(traceback.format_exception(error))
        raise AssertionError(f"{label} raised {type(error).__name__}\n{text}") from error
    return "worked"
