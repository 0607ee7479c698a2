"""Golden files: each `*.cl`, `*.cu`, `*.glsl` and `*.wgsl` is a function or a kernel in that language.

Files are named by what they show. Shaders have no kernels, and no doubles.

Equal functions are one object with the name of the first, so constants here are used nowhere else.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

import livegrad as lg
from livegrad import ops
from livegrad.codegen.c import CUDA, GLSL, OPENCL, WGSL, function_source, kernel_source
from livegrad.codegen.c.dialect import Dialect
from livegrad.codegen.c.identifiers import identifier
from livegrad.diagnostics import CompileError
from livegrad.ir.leaves import constant
from livegrad.ir.types import Array, Tuple, Vector, f32, f64, i64
from livegrad.ops.control import make_for_loop

HERE = Path(__file__).parent
V = Vector(f32, 3)
SUFFIXES = {OPENCL: "cl", CUDA: "cu", GLSL: "glsl", WGSL: "wgsl"}
DIALECTS = pytest.mark.parametrize("dialect", [OPENCL, CUDA], ids=lambda dialect: dialect.name)
# Names that collide with the language, with the kernel around a function, or with values.
NAMES = (
    "v0",
    "p0",
    "i",
    "value",
    "evaluate",
    "float3",
    "make_float3",
    "sinf",
    "class",
    "template",
    "__x",
    "mix",
    "main",
)


def calling_twice() -> lg.ir.Function:
    inner = lg.ir.trace(lambda p: ops.length(p) * 210.0, V, name="size")
    return lg.ir.trace(lambda p: ops.call(p, function=inner) + ops.call(p * p, function=inner), V, name="both")


def calling_namesakes() -> lg.ir.Function:
    first, second = (lg.ir.trace(lambda x, k=k: x * k, f32, name="scaled") for k in (212.0, 213.0))
    return lg.ir.trace(lambda x: ops.call(x, function=first) + ops.call(x, function=second), f32, name="sum")


def calling_any_names() -> lg.ir.Function:
    inner = [lg.ir.trace(lambda x, k=k: x * (5000.0 + k), f32, name=name) for k, name in enumerate(NAMES)]

    def outer(x: lg.ir.Node) -> lg.ir.Node:
        for function in inner:
            x = x + ops.call(x, function=function)
        return x

    return lg.ir.trace(outer, f32, name="main")


def looping_and_choosing() -> lg.ir.Function:
    def body(i: lg.ir.Node, x: lg.ir.Node) -> lg.ir.Node:
        return ops.select(x > 218.0, ops.atan2(x, x + 1.0), x * 2.0)

    return lg.ir.trace(lambda x: make_for_loop(constant(5, i64), body, x)[0], f32, name="turn")


def choosing_a_struct() -> lg.ir.Function:
    def choose(x: lg.ir.Node, n: lg.ir.Node) -> lg.ir.Node:
        pair = Tuple((f32, i64))
        pairs = [ops.make(x + 219.0, n, type=pair), ops.make(x, n, type=pair)]
        return ops.get_at(ops.make(*pairs, type=Array(pair, 2)), n)

    return lg.ir.trace(choose, f32, i64, name="pair")


FUNCTIONS: dict[str, Callable[[], lg.ir.Function]] = {
    "a_function_is_defined_once_and_before_its_users": calling_twice,
    "functions_of_equal_name_are_renamed": calling_namesakes,
    "doubles_enable_their_extension": lambda: lg.ir.trace(lambda x: x + 215.0, f64, name="shifted"),
    "loops_and_choices": looping_and_choosing,
    "structs_are_chosen": choosing_a_struct,
    "vectors_of_any_width_are_structs": lambda: lg.ir.trace(lambda x: x * x + 216.0, Vector(f32, 5), name="squares"),
}
KERNELS: dict[str, tuple[Callable[[], lg.ir.Function], tuple[bool, ...]]] = {
    "kernels_skip_threads_past_the_end": (
        lambda: lg.ir.trace(lambda p, r: ops.length(p) * 217.0 - r, V, f32, name="ball"),
        (True, False),
    ),
    "names_do_not_collide_with_the_language": (calling_any_names, (True,)),
}


@pytest.mark.parametrize("dialect", SUFFIXES, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_the_expected_source(
    name: str, dialect: Dialect, check_golden: Callable[[Path, str], None]
) -> None:
    if dialect in (GLSL, WGSL) and "doubles" in name:
        with pytest.raises(CompileError, match=f"{dialect.name} has no f64"):
            function_source(FUNCTIONS[name](), dialect)
        return
    check_golden(HERE / f"{name}.{SUFFIXES[dialect]}", function_source(FUNCTIONS[name](), dialect))


@DIALECTS
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_have_the_expected_source(
    name: str, dialect: Dialect, check_golden: Callable[[Path, str], None]
) -> None:
    function, lifted = KERNELS[name]
    check_golden(HERE / f"{name}.{SUFFIXES[dialect]}", kernel_source(function(), lifted, dialect).text)


@pytest.mark.parametrize("name", NAMES)
def test_names_that_collide_are_changed(name: str) -> None:
    assert identifier(name) != name
