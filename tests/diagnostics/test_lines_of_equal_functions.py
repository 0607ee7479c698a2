"""Equal functions in two files: an error names the line of the function that failed, never that of the other.

Every case defines one function body in two files at different lines; both functions are built before either runs.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.compiler import lower
from livegrad.diagnostics import LivegradError
from livegrad.implicit.nodes.to_ir import to_function
from livegrad.ir.leaves import constant
from livegrad.ir.line_sites import equal_but_for_lines
from livegrad.ir.node import Module
from livegrad.ir.walk import nodes_of
from livegrad.passes.expand import expand_ops
from livegrad.passes.inline_calls import inline_calls
from livegrad.passes.simplify import Simplify
from livegrad.runtime import reference
from livegrad.runtime.cpu import compile_function, kernel_code
from livegrad.runtime.cpu import cpu_function as cpu_function
from livegrad.runtime.cpu.tier_up import background_compiler
from livegrad.runtime.object_cache import CacheSettings, ObjectCache, set_default_cache
from livegrad.state import fresh_session
from tests.node_counts import settled_node_count

FILES = {"first.py": 3, "second.py": 40}
I, F = lg.i32, lg.f32
ROW = lg.ir.types.Tensor(F, (4,))


def define_at_two_lines(body: str, name: str = "f") -> list[Callable[..., Any]]:
    """Defines the function with the text `body` in two files; the second line of the body is the one that fails."""
    return [_define(body, name, file, line) for file, line in FILES.items()]


def _define(body: str, name: str, file: str, line: int) -> Callable[..., Any]:
    names: dict[str, Any] = {"lg": lg, "ops": ops, "np": np, "constant": constant}
    exec(compile("\n" * (line - 2) + body, file, "exec"), names)
    return names[name]


def location_of(run: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(LivegradError) as raised:
        run(*arguments)
    where = raised.value.where
    return "nowhere" if where is None else f"{where.file}:{where.line}"


EXPECTED = [f"{file}:{line}" for file, line in FILES.items()]

# name: (text, parameter types, arguments that fail)
CASES: dict[str, tuple[str, tuple[Any, ...], tuple[Any, ...]]] = {
    "integer division": ("def f(a, b):\n    return a // b + 1\n", (I, I), (5, 0)),
    "remainder": ("def f(a, b):\n    return a % b + 1\n", (I, I), (5, 0)),
    "index": ("def f(table, i):\n    return ops.lookup(table, i) * 2.0\n", (ROW, lg.i64), (np.ones(4, np.float32), 9)),
    "assertion": ("def f(x):\n    return ops.check(x, x > 0.0, message='not positive') * 2.0\n", (F,), (-1.0,)),
    "cast": ("def f(x):\n    return ops.cast(x, type=lg.i32) + 1\n", (F,), (np.nan,)),
    "limit of a loop": (
        "def f(x):\n    return ops.make_while_loop(lambda x: x > 0.0, lambda i, x: x + 1.0, x, limit=3)[0]\n",
        (F,),
        (1.0,),
    ),
    "switch": (
        "def f(i, x):\n    return ops.make_switch(i, [lambda x: x, lambda x: x + 1.0], x)\n",
        (I, F),
        (7, 1.0),
    ),
    "check in a loop": (
        "def f(a, b):\n    return ops.make_for_loop(constant(3, lg.i64), lambda i, v: v // b, a)[0]\n",
        (I, I),
        (5, 0),
    ),
    "check in a branch": (
        "def f(a, b):\n    return ops.make_cond(a > 0, lambda: a // b, lambda: a)\n",
        (I, I),
        (5, 0),
    ),
}


@pytest.fixture(params=CASES, ids=lambda name: name.replace(" ", "_"))
def case(request: pytest.FixtureRequest) -> tuple[list[lg.ir.Function], tuple[Any, ...]]:
    text, types, arguments = CASES[request.param]
    return [lg.ir.trace(f, *types) for f in define_at_two_lines(text)], arguments


def test_a_failed_check_names_the_line_of_the_function_that_ran(case: Any) -> None:
    functions, arguments = case
    compiled = [compile_function(function) for function in functions]
    assert [location_of(run, *arguments) for run in compiled] == EXPECTED
    # In any order, and again.
    assert [location_of(run, *arguments) for run in reversed(compiled)] == EXPECTED[::-1]


def test_the_reference_names_the_line_of_the_function_that_ran(case: Any) -> None:
    functions, arguments = case
    assert [location_of(reference.evaluate, function, *arguments) for function in reversed(functions)] == EXPECTED[::-1]


def test_passes_keep_the_lines_of_each_function(case: Any) -> None:
    functions, arguments = case
    lowered = [lower(function) for function in functions]
    assert [location_of(reference.evaluate, function, *arguments) for function in lowered] == EXPECTED
    simplified = [Simplify()(Module((function,))).functions[0] for function in functions]
    assert [location_of(reference.evaluate, function, *arguments) for function in simplified] == EXPECTED
    expanded = [expand_ops(function, lambda node: False) for function in functions]
    assert [location_of(reference.evaluate, function, *arguments) for function in expanded] == EXPECTED


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """Records the compiler's work as it happens: passes, generated kernels and compiled kernels. Caches are empty."""
    done: list[str] = []

    def counted(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            done.append(name)
            return plain(*arguments, **named)

        return run

    for owner, name in ((cpu_function, "lower"), (kernel_code.KernelCompiler, "_load_or_compile")):
        monkeypatch.setattr(owner, name, counted(name, getattr(owner, name)))
    with fresh_session():
        set_default_cache(ObjectCache(CacheSettings(tmp_path / "objects")))
        yield done


def test_functions_that_differ_only_in_lines_are_compiled_once(case: Any, work: list[str], tmp_path: Path) -> None:
    functions, arguments = case
    assert location_of(compile_function(functions[0]), *arguments) == EXPECTED[0]
    assert {"lower", "_load_or_compile"} <= set(work)
    work.clear()
    set_default_cache(ObjectCache(CacheSettings(tmp_path / "nothing")))  # the code is in memory
    assert location_of(compile_function(functions[1]), *arguments) == EXPECTED[1]
    assert work == []


def test_functions_that_differ_only_in_lines_share_an_entry_of_the_disk_cache(case: Any, work: list[str]) -> None:
    functions, arguments = case
    assert location_of(compile_function(functions[0]), *arguments) == EXPECTED[0]
    background_compiler.current.wait()  # it is written to the disk once it is as good as it gets
    kernel_code.forget_kernels()
    cpu_function.forget_functions()
    work.clear()
    assert location_of(compile_function(functions[1]), *arguments) == EXPECTED[1]
    assert work == []


def test_a_function_that_calls_two_equal_ones_names_the_line_of_the_one_that_failed() -> None:
    first, second = (lg.ir.trace(f, I, I) for f in define_at_two_lines(CASES["integer division"][0]))

    def both(a: lg.ir.Node, b: lg.ir.Node, c: lg.ir.Node) -> lg.ir.Node:
        return ops.call(a, b, function=first) + ops.call(a, c, function=second)

    function = lg.ir.trace(both, I, I, I)
    flat = inline_calls(Module((function,))).functions[0]
    for run in (compile_function(function), partial(reference.evaluate, function), partial(reference.evaluate, flat)):
        assert location_of(run, 6, 0, 2) == EXPECTED[0]
        assert location_of(run, 6, 2, 0) == EXPECTED[1]
    assert int(compile_function(function)(6, 2, 3)) == 7


def test_equal_checks_at_two_lines_of_a_function_are_computed_once() -> None:
    def twice(a: lg.ir.Node, b: lg.ir.Node) -> lg.ir.Node:
        first = a // b
        second = a // b
        return first * 3 + second

    function = lg.ir.trace(twice, I, I)
    lowered = lower(function)
    assert [node.op.name for node in nodes_of(function)].count("floor_div") == 2
    assert [node.op.name for node in nodes_of(lowered)].count("floor_div") == 1
    place = location_of(compile_function(function), 1, 0)
    assert place == f"{__file__}:{twice.__code__.co_firstlineno + 1}"


def test_derivatives_name_the_line_of_the_function_that_ran() -> None:
    text = "def f(table, i):\n    return ops.lookup(table, i) * ops.lookup(table, i)\n"
    functions = [lg.ir.trace(f, ROW, lg.i64) for f in define_at_two_lines(text)]
    table, seed = np.ones(4, np.float32), np.ones(4, np.float32)
    for derive, arguments in ((lg.vjp, (table, 9, np.float32(1.0))), (lg.jvp, (table, 9, seed, ()))):
        derived = [derive(function) for function in functions]
        assert [location_of(compile_function(function), *arguments) for function in derived] == EXPECTED
        assert [location_of(reference.evaluate, function, *arguments) for function in derived] == EXPECTED


def test_a_missing_derivative_names_the_line_of_the_function_that_was_differentiated() -> None:
    text = "def f(x):\n    return lg.sum(lg.linalg.qr(x, mode='complete')[0])\n"
    functions = define_at_two_lines(text)
    assert [location_of(lg.grad(f), lg.ones((3, 2))) for f in functions] == EXPECTED


def test_a_type_error_names_the_line_that_was_written() -> None:
    functions = define_at_two_lines("def f(x, y):\n    return x + y\n")
    assert [location_of(lg.ir.trace, f, F, I) for f in functions] == EXPECTED
    assert [location_of(f, lg.ones((3,)), lg.ones((4,))) for f in functions] == EXPECTED


def test_maps_and_batches_name_the_line_of_the_function_that_ran() -> None:
    functions = define_at_two_lines("def f(a, b):\n    return a // b\n")
    ones, zeros = np.ones(5, np.int32), np.zeros(5, np.int32)
    mapped = [compile_function(lg.ir.map_over(lg.ir.trace(f, I, I))) for f in functions]
    assert [location_of(run, ones, zeros) for run in mapped] == EXPECTED
    batched = [lg.vmap(f) for f in functions]
    assert [
        location_of(lambda run=run: run(lg.asarray(ones), lg.asarray(zeros)).execute()) for run in batched
    ] == EXPECTED


@pytest.mark.gpu
def test_a_failed_check_on_a_gpu_names_the_line_of_the_function_that_ran(case: Any) -> None:
    functions, arguments = case
    compiled = [import_module("livegrad.runtime.cuda").compile_function(function) for function in functions]
    assert [location_of(run, *arguments) for run in compiled] == EXPECTED
    assert [location_of(run, *arguments) for run in reversed(compiled)] == EXPECTED[::-1]


# --- lazy tensors ----------------------------------------------------------------------------------------------------


def test_tensors_name_the_line_of_the_expression_that_is_read() -> None:
    first, second = define_at_two_lines("def f(a, b):\n    return a // b + 1\n")
    a, b = lg.asarray([4, 5]), lg.asarray([1, 0])
    one, other = first(a, b), second(a, b)  # both are alive, over the same data
    assert location_of(other.execute) == EXPECTED[1]
    assert location_of(one.execute) == EXPECTED[0]


def test_tensors_that_differ_only_in_lines_share_their_program() -> None:
    # A form of its own: what was computed of the same form before decides what is an argument of the program.
    first, second = define_at_two_lines("def f(a, b):\n    return a // b * 7 - (a ^ b ^ a * b)\n")
    # The data are too large for ops without nodes.
    first(lg.asarray([4, 5] * 600), lg.asarray([1, 2] * 600)).execute()
    before = lg.stats()
    assert second(lg.asarray([4, 5] * 600), lg.asarray([1, 2] * 600)).tolist() == [27, 1] * 600
    assert lg.stats().programs_compiled == before.programs_compiled
    assert lg.stats().programs_reused == before.programs_reused + 1
    assert location_of(second(lg.asarray([4, 5]), lg.asarray([1, 0])).execute) == EXPECTED[1]
    assert location_of(first(lg.asarray([4, 5]), lg.asarray([1, 0])).execute) == EXPECTED[0]


def test_a_divisor_that_became_an_argument_names_the_line_that_was_read() -> None:
    first, second = define_at_two_lines("def f(a, n):\n    return a // n + 11\n")
    a = lg.asarray([4, 5])
    for divisor in (3, 4, 5):  # the third time, whole numbers are arguments of the program
        first(a, divisor).execute()
    assert location_of(second(a, 0).execute) == EXPECTED[1]


def test_compiled_tensor_functions_name_their_own_line() -> None:
    functions = [lg.jit(f) for f in define_at_two_lines("def f(a, b):\n    return a // b + 1\n")]
    given = lg.asarray([4, 5]), lg.asarray([1, 0])
    assert [location_of(f, *given) for f in functions] == EXPECTED
    assert [location_of(f, *given) for f in reversed(functions)] == EXPECTED[::-1]


def test_a_nan_is_blamed_on_the_line_of_the_expression_that_is_read() -> None:
    first, second = define_at_two_lines("def f(a, b):\n    return lg.sqrt(a / b)\n")
    a, b = lg.asarray([0.0, 1.0]), lg.asarray([0.0, 1.0])
    with lg.debug_nans():
        one, other = first(a, b), second(a, b)
        assert location_of(other.execute) == EXPECTED[1]
        assert location_of(one.execute) == EXPECTED[0]


def test_a_nan_in_a_derivative_is_blamed_on_the_line_of_the_function() -> None:
    functions = define_at_two_lines("def f(x):\n    return lg.sum(lg.sqrt(x) * 0.0)\n")
    x = lg.asarray([0.0, 1.0])
    with lg.debug_nans():
        slopes = [lg.grad(f)(x) for f in functions]
        assert [location_of(slope.execute) for slope in slopes] == EXPECTED
        tangents = [lg.jvp(f, (x,), (lg.ones((2,)),))[1] for f in functions]
        assert [location_of(tangent.execute) for tangent in tangents] == EXPECTED


def test_a_nan_in_a_graph_built_before_names_all_its_lines() -> None:
    first, second = define_at_two_lines("def f(a, b):\n    return a / b\n")
    a, b = lg.asarray([0.0, 1.0]), lg.asarray([0.0, 1.0])
    one, other = first(a, b), second(a, b)
    assert one.node is other.node, "without a check, the same expression is one value"
    with lg.debug_nans(), pytest.raises(lg.KernelCheckError) as raised:
        one.execute()
    assert all(file in str(raised.value) for file in FILES)


# --- threads, memory -------------------------------------------------------------------------------------------------


def test_threads_that_compile_equal_functions_name_their_own_lines() -> None:
    text = "def f(a, b):\n    return (a + 12345) // b\n"
    found: dict[int, str] = {}

    def run(number: int) -> None:
        function = lg.ir.trace(_define(text, "f", f"thread{number}.py", 10 + number), I, I)
        together.wait()
        found[number] = location_of(compile_function(function), 5, 0)

    together = threading.Barrier(8)
    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: f"thread{number}.py:{10 + number}" for number in range(8)}


@pytest.mark.usefixtures("own_session")
def test_lines_of_a_deleted_function_are_released() -> None:
    text = "def f(a, b):\n    return (a * 54321) // b\n"
    kept = lg.ir.trace(_define(text, "f", "kept.py", 7), I, I)
    before = settled_node_count()
    gone = None
    for number in range(20):
        gone = lg.ir.trace(_define(text, "f", f"gone{number}.py", 3 + number), I, I)
        assert location_of(reference.evaluate, gone, 5, 0) == f"gone{number}.py:{3 + number}"
    del gone
    assert settled_node_count() <= before
    computed = [node for node in nodes_of(kept) if node.operands]
    assert {place.file for node in computed for place in (*kept.origins_of(node), *node.local_origins)} == {"kept.py"}


def test_text_distinguishes_equal_checks_of_two_lines_and_round_trips() -> None:
    def twice(a: lg.ir.Node, b: lg.ir.Node) -> lg.ir.Node:
        first = a // b
        return first + a // b

    function = lg.ir.trace(twice, I, I)
    text = lg.ir.print_function(function)
    assert text.count("floor_div") == 2
    again = lg.ir.parse_function(text, file="twice.ir")
    assert lg.ir.print_function(again) == text
    assert equal_but_for_lines(again, function)
    assert location_of(reference.evaluate, again, 1, 0) == "twice.ir:2"


# --- other ways to write functions -----------------------------------------------------------------------------------


def test_functions_captured_from_source_name_their_own_file(tmp_path: Path) -> None:
    found = []
    for file, line in FILES.items():
        path = tmp_path / file
        text = "import livegrad as lg\n\n@lg.function\ndef f(a: lg.i32, b: lg.i32) -> lg.i32:\n    return a // b\n"
        path.write_text("\n" * (line + 2) + text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found.append((module.f, f"{path}:{line + 7}"))
    for function, place in (*found, *reversed(found)):
        assert location_of(function, 1, 0) == place


def test_nodes_of_an_assembly_are_named_without_the_line_of_the_caller() -> None:
    inputs = {"pos": lg.implicit.PortType.VECTOR}
    made = lg.Assembly()
    for name in ("first", "second"):
        made = made.add_function(name, inputs, {"value": lg.implicit.PortType.SCALAR})
        made = made.add_node(name, "Length", f"{name}_length", A="inputs.pos")
        made = made.link(name, f"{name}_length.result", "outputs.value")
    for name in ("first", "second", "first"):
        function = to_function(made, name)
        assert [str(place) for place in function.origins_of(function.results[0])] == [
            f"node `{name}_length` of `{name}`"
        ]
    again = to_function(made, "first")
    assert again == to_function(made, "first")
