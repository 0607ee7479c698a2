"""Random calls with one argument that a function can hardly mean: they work, or are refused at the caller's line.

Every public function takes part, with the methods of parts, assemblies, graphs and tensors, what transforms give, and
typed functions. The oracle is a rule: nothing but a `LivegradError` that names this file may leave a call.
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
from typing import Any

import numpy as np

import livegrad as lg
from livegrad.ir.origins import ambient

SHORT = 8
CALLS = 60  # of each seed
# They end the process's caches, write files, run code, or run for as long as they are asked to.
LEFT_OUT = {
    "clear_caches", "load", "print", "record", "replay", "run_source", "save", "save_3mf", "save_animation",
    "save_mesh", "save_png", "save_stl", "save_svg", "set_cache_budget", "reset_stats", "register_feature",
    "register_with_einops",
}  # fmt: skip


class Thing:
    """What nobody expects."""

    def __repr__(self) -> str:
        return "<thing>"


@lg.differentiable
def product(x: float, y: lg.f32) -> float:
    return x * y


@lg.differentiable
def reach(p: lg.vec3, weights: list[float]) -> lg.f32:
    return lg.length(p) * sum(weights)


def square(x: Any) -> Any:
    return lg.sum(x * x)


PART: Any = lg.shapes.sphere(lg.shapes.Parameter("radius", 1.0)).part(((-2, -2, -2), (2, 2, 2)), "ball")
GOOD: Any = lg.asarray([[2.0, 1.0], [1.0, 3.0]])
JUNK: dict[str, Any] = {
    "None": None, "text": "a", "a thing": Thing(), "{}": {}, "{a: 1}": {"a": 1.0}, "[]": [], "[None]": [None],
    "a function": lambda *arguments: arguments, "a class": Thing, "2**70": 2**70, "10**400": [10**400],
    "nan": float("nan"), "inf": float("inf"), "-1": -1, "1.5": 1.5, "1j": 1j, "True": True, "a type": lg.f32,
    "(1, 2, 3)": (1, 2, 3), "ragged": [[1], [1, 2]], "bytes": b"x", "a set": {1, 2}, "texts": np.array(["a"]),
    "objects": np.array([Thing()]),
    "an array": np.ones((2, 2)), "no elements": lg.zeros((0,)), "complex": lg.ones((2, 2), dtype=lg.complex64),
    "truths": lg.ones((2, 2), dtype=lg.bool), "integers": lg.ones((2, 2), dtype=lg.int64), "a cube": lg.ones((2, 3, 4)),
    "a shape": lg.shapes.sphere(1.0), "a part": PART,
}  # fmt: skip


def engine_call(method: str) -> Callable[..., Any]:
    """A method of an engine that is as good as new."""

    def call(*arguments: Any) -> Any:
        engine = lg.Engine()
        engine.add(lg.block(lambda x=1.0: x * 2.0, name="double"))
        return getattr(engine, method)(*arguments)

    return call


def subjects() -> dict[str, tuple[Callable[..., Any], int, tuple[str, ...]]]:
    """What is called: by name, with the number of arguments by position, and the arguments by name."""
    found: dict[str, Any] = {}
    spaces = {"lg": (lg, lg.__all__), **{f"lg.{s}": (m := getattr(lg, s), m.__all__) for s in NAMESPACES}}
    for space, (module, names) in spaces.items():
        found |= {f"{space}.{name}": getattr(module, name) for name in names if name not in LEFT_OUT}
    assembly = lg.assembly_of_part(PART)
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
    for method in ("add", "connect", "edit", "reset", "remove", "keep", "set_feature"):
        found[f"engine.{method}"] = engine_call(method)
    return {name: (value, *_shape(name, value)) for name, value in found.items()}


NAMESPACES = ("linalg", "fft", "nn", "random", "optim", "shapes")
ENGINE = {"connect": 2, "edit": 2, "set_feature": 2}


def _shape(name: str, value: Callable[..., Any]) -> tuple[int, tuple[str, ...]]:
    if name.startswith("engine."):
        return ENGINE.get(name.removeprefix("engine."), 1), ()
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
    chance, counts = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(CALLS):
            name = chance.choice(sorted(_subjects))
            function, needed, named = _subjects[name]
            place, junk = chance.randrange(needed + len(named) + 1), chance.choice(list(JUNK))
            arguments, keywords = [GOOD] * needed, {}
            if place < needed:
                arguments[place] = JUNK[junk]
            elif place < needed + len(named):
                keywords[named[place - needed]] = JUNK[junk]
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
        if error.where is None and not isinstance(error, lg.KernelCheckError):
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
