"""What travels to other processes: functions, parts, contexts and states, by pickle and by cloudpickle."""

import pickle
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

import livegrad as lg
from livegrad.diagnostics import UsageError
from livegrad.ir.text import parse_module
from livegrad.runtime.cpu import compile_function

ROOT = Path(__file__).parent.parent

# Runs as a script: its functions belong to `__main__`, which is another module where they arrive.
SENDER = """
import sys
import cloudpickle, numpy as np, livegrad as lg

SCALE = 3.0

def helper(x: float) -> float:
    return SCALE * x if x > 0.0 else -x

@lg.function
def looped(x: float, n: int) -> float:
    total = 0.0
    for i in range(n):
        total += helper(x) + i
    return total

@lg.differentiable
class Ball:
    center: lg.vec2
    radius: lg.f32

@lg.differentiable
def distance(ball: Ball, p: lg.vec2) -> lg.f32:
    return lg.length(p - ball.center) - ball.radius

@lg.differentiable
def cube(x: float) -> float:
    return x * x * x

@cube.forward_derivative
def cube_forward(x: lg.Pair[float]) -> lg.Pair[float]:
    return lg.pair(x.primal ** 3, 100.0 * x.differential)

@lg.custom_vjp
def clipped(x):
    return x

clipped.defvjp(lambda x: (x, None), lambda saved, ct: (lg.clip(ct, -1.0, 1.0),))

@lg.jit
def loss(w, x):
    return lg.sum(clipped(w * x) ** 2)

def use(f):
    return lambda x: lg.sum(f(x) * SCALE)

graph = lg.ContextGraph()
graph.value("offset", 2.0)
graph.node("wave", lambda ctx, offset: ctx.animation_time * offset, plain=["offset"], extract="animation_time")
optimizer, bounds = lg.optim.Adam(0.1), ((-4.0,) * 3, (4.0,) * 3)
w, x = lg.asarray([1.0, -2.0]), lg.asarray([0.5, 3.0])
objects = {
    "looped": (looped, (2.0, 4)),
    "distance": (distance, (Ball(lg.vec2(1.0, 2.0), 0.5), lg.vec2(4.0, 6.0))),
    "derivative": (lg.bwd_diff(distance), (Ball(lg.vec2(1.0, 2.0), 0.5), lg.vec2(4.0, 6.0), 1.0)),
    "custom derivative": (lg.fwd_diff(cube), (lg.pair(2.0, 1.0),)),
    "jit": (loss, (w, x)),
    "gradient": (lg.jit(lg.grad(loss)), (w, x)),
    "closure": (lg.jit(use(lg.tanh)), (x,)),
    "vmap": (lg.vmap(lambda a, b: lg.sum(a * b), in_axes=(0, None)), (lg.ones((2, 2)), x)),
    "program": (graph.compile("wave", root="animation_time").evaluate, ({"animation_time": 1.5},)),
    "part": (lg.shapes.union(lg.shapes.sphere(2.0), lg.shapes.box((3.0, 1.0, 1.0))).part(bounds).volume, ()),
    "step": (optimizer.update, (w, x, optimizer.init(w))),
    "compiled": (lg.ir.compile(lg.ir.trace(lambda x: x * x + 1.0, lg.f32)), (3.0,)),
}
objects = {name: pair for name, pair in objects.items() if name in sys.argv[2:] or not sys.argv[2:]}
with open(sys.argv[1], "wb") as file:
    cloudpickle.dump(objects, file)
print({name: repr(function(*arguments)) for name, (function, arguments) in objects.items()})
"""
RECEIVER = """
import pickle, sys
with open(sys.argv[1], "rb") as file:
    objects = pickle.load(file)
print({name: repr(function(*arguments)) for name, (function, arguments) in objects.items()})
"""


def run(folder: Path, script: str, *arguments: str) -> str:
    (folder / "script.py").write_text(textwrap.dedent(script))
    command = [sys.executable, "script.py", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_everything_of_a_script_travels_to_a_process_that_does_not_have_it(tmp_path: Path) -> None:
    sender, receiver = tmp_path / "sender", tmp_path / "receiver"
    sender.mkdir()
    receiver.mkdir()
    sent = run(sender, SENDER, str(tmp_path / "objects.pickle"))
    (sender / "script.py").unlink()
    assert run(receiver, RECEIVER, str(tmp_path / "objects.pickle")) == sent
    assert "gradient" in sent


def test_another_file_in_the_place_of_the_source_is_not_mistaken_for_it(tmp_path: Path) -> None:
    sent = run(tmp_path, SENDER, str(tmp_path / "objects.pickle"), "looped", "distance")
    decoy = SENDER.replace("total += helper(x) + i", "total += helper(x) - i").replace("- ball.radius", "+ ball.radius")
    (tmp_path / "script.py").write_text(decoy)  # where the code objects say that their source is
    (tmp_path / "receive.py").write_text(RECEIVER)
    command = [sys.executable, "receive.py", str(tmp_path / "objects.pickle")]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120).stdout == sent


@lg.jit
def doubled(x: Any) -> Any:
    return 2.0 * x


@lg.differentiable
def squared(x: float) -> float:
    return x * x


halved = lg.jit(lambda x: x / 2.0)


@pytest.mark.parametrize("function", [doubled, squared, halved])
def test_functions_of_a_module_are_pickled_by_name(function: Any) -> None:
    assert pickle.loads(pickle.dumps(function)) is function
    assert pickle.loads(cloudpickle.dumps(function)) is function
    assert len(pickle.dumps(function)) < 100


def test_objects_that_refer_to_each_other_still_do_so_afterwards() -> None:
    names = lg.run_source("def f(x: float): return x / 2.0\ndef g(x: int): return x // 2")
    half = lg.function(names["f"])
    half.overload(names["g"])
    loaded, again = pickle.loads(cloudpickle.dumps([half, half]))
    assert loaded is again
    assert (loaded(3.0), loaded(3)) == (1.5, 1)
    assert loaded.overloads[0] is loaded


def functions_of_golden_files() -> list[Any]:
    texts = [path.read_text() for path in sorted((ROOT / "tests" / "passes").glob("*.ir"))]
    halves = [half for text in texts for half in re.split(r"^# after .*$", text, flags=re.MULTILINE)]
    return [function for half in halves if "function @" in half for function in parse_module(half).functions]


def test_functions_of_the_ir_are_the_same_objects_afterwards() -> None:
    functions = functions_of_golden_files()
    assert len(functions) > 20
    for function in functions:
        loaded = pickle.loads(pickle.dumps(function))
        assert loaded == function
        assert all(a is b for a, b in zip(loaded.results, function.results, strict=True))
        assert lg.ir.print_function(loaded) == lg.ir.print_function(function)


def test_a_long_function_travels_and_errors_still_name_its_lines() -> None:
    def chain(x: Any) -> Any:
        for number in range(5000):
            x = x * 1.5 + float(number)
        return x

    long = lg.ir.trace(chain, lg.f32)
    assert pickle.loads(pickle.dumps(long)) == long
    picked = lg.jit(lambda x, i: x[i])
    picked(lg.ones(3), lg.asarray(1))
    (function,) = picked.functions
    loaded = pickle.loads(pickle.dumps(function))
    lines = [[str(origin) for origin in f.origins_of(f.results[0])] for f in (function, loaded)]
    assert lines[0] == lines[1]
    assert "test_pickling.py" in lines[0][0]


def test_assemblies_are_read_only_afterwards() -> None:
    assembly = lg.Assembly().add_function("f", {"x": lg.implicit.PortType.SCALAR}, {"y": lg.implicit.PortType.SCALAR})
    assembly = assembly.add_node("f", "Sin", "s", A="inputs.x").link("f", "s.result", "outputs.y")
    loaded = pickle.loads(pickle.dumps(assembly))
    assert loaded == assembly
    with pytest.raises(TypeError):
        loaded.functions[1] = None  # type: ignore[index]


def test_an_edited_context_graph_travels_with_its_programs() -> None:
    graph = lg.ContextGraph()
    graph.value("numbers", [1, 2])
    graph.node("total", sum_of, plain=["numbers"])
    program = graph.compile("total")
    loaded_graph, loaded = pickle.loads(pickle.dumps((graph, program)))
    assert loaded.evaluate() == 3
    loaded_graph.set("numbers", [5, 6])
    assert (loaded.evaluate(), program.evaluate()) == (11, 3)


def sum_of(ctx: Any, numbers: list[int]) -> int:
    return sum(numbers)


def test_a_function_that_this_process_knows_is_not_compiled_again() -> None:
    scale = 3.0
    sent = cloudpickle.dumps(lg.jit(lambda x: lg.sum(lg.tanh(x) * scale)))
    first, again = pickle.loads(sent), pickle.loads(sent)
    assert first is not again
    assert float(first(lg.ones(3))) == float(again(lg.ones(3)))
    plans = [compile_function(jitted.functions[0]).plan() for jitted in (first, again)]
    assert plans[0] is plans[1]


def test_an_engine_says_what_to_send_instead() -> None:
    with pytest.raises(UsageError, match=r"cannot be pickled.*engine.save\(path\)"):
        pickle.dumps(lg.Engine())


def test_a_node_that_reads_data_is_refused() -> None:
    with pytest.raises(UsageError, match=r"a node that reads data cannot be pickled.*pickle the tensor"):
        pickle.dumps((lg.asarray(np.ones(3)) + 1.0).node)
