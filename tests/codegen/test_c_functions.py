"""The C emitter in each dialect; CUDA C is compiled by NVRTC if it is installed."""

from typing import Any

import pytest

import livegrad as lg
from livegrad import ops
from livegrad.codegen.c import CUDA, OPENCL, function_source, kernel_source
from livegrad.diagnostics import CompileError
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.expression import add_expression
from livegrad.implicit.nodes.node_types import ARITHMETIC
from livegrad.implicit.nodes.ports import PortType
from livegrad.implicit.nodes.resources import TriangleMesh
from livegrad.implicit.nodes.to_ir import to_function
from livegrad.ir.types import Tensor, Vector, f16, f32, f64, i8, i32, i64, u64
from livegrad.runtime.cuda.nvrtc import compile_source, reason_for_no_compiler
from tests.implicit.gradient_graphs import with_gradient
from tests.runtime.cuda.test_kernels import kernels
from tests.runtime.test_opencl import all_nodes, branching, integers

needs_nvrtc = pytest.mark.skipif(reason_for_no_compiler() is not None, reason=str(reason_for_no_compiler()))
V = Vector(f32, 3)
DIALECTS = pytest.mark.parametrize("dialect", [OPENCL, CUDA], ids=lambda dialect: dialect.name)


def compiled(function: lg.ir.Function, lifted: tuple[bool, ...] | None = None) -> bytes:
    text = kernel_source(function, lifted or (True,) * len(function.parameters), CUDA).text
    return compile_source(text, "sm_90", function.name)


@needs_nvrtc
@pytest.mark.parametrize("kind", [*ARITHMETIC, None])
def test_every_node_type_compiles_as_cuda_c(kind: PortType | None) -> None:
    _, function, _ = all_nodes(kind)
    assert compiled(function).startswith(b"\x7fELF")


@needs_nvrtc
def test_integers_branches_and_checks_compile_as_cuda_c() -> None:
    for element in (i8, i32, i64, u64):
        assert compiled(lg.ir.trace(integers, element, element))
    assert compiled(lg.ir.trace(branching, i32, f32))


@needs_nvrtc
def test_the_cuda_code_of_an_assembly_compiles() -> None:
    """Covers central differences, exact derivatives, and the loops of mesh distances."""
    made = with_gradient("inputs.h").add_resource(TriangleMesh.box((-1, -1, -1), (1, 1, 1)), id=8)
    made = made.add_function("d", {"pos": PortType.VECTOR}, {"m": PortType.SCALAR})
    made = made.add_node("d", "Mesh", "mesh", pos="inputs.pos", mesh=8).link("d", "mesh.distance", "outputs.m")
    texts = [made.to_cuda("main"), made.to_cuda("main", exact=True, element=f64), made.to_cuda("d")]
    for number, text in enumerate(texts):
        # An unused device function is parsed and checked, but emits no code.
        assert compile_source(text, "sm_90", f"text{number}").startswith(b"\x7fELF")


def test_both_dialects_emit_the_same_statements() -> None:
    """Scalar code is the same, except for the names of single-precision functions."""
    function = lg.ir.trace(lambda x, y: ops.sqrt(x * y) + ops.min(x, y) / 3.0, f64, f64, name="same")
    opencl, cuda = function_source(function, OPENCL), function_source(function, CUDA)
    assert opencl.removeprefix(f"{OPENCL.double_pragma}\n") == cuda.removeprefix("__device__ inline ")


def test_a_method_of_assemblies_gives_cuda_text() -> None:
    made = add_expression(Assembly(), "ball", "length(pos) - 1", {"pos": "vector"})
    assert made.to_cuda("ball") == function_source(to_function(made, "ball"), CUDA)


@DIALECTS
def test_unsupported_types_and_ops_are_named_in_errors(dialect: Any) -> None:
    with pytest.raises(CompileError, match=f"{dialect.name} has no f16"):
        function_source(lg.ir.trace(lambda x: x, f16), dialect)


@DIALECTS
def test_constants_are_the_shortest_that_round_trip(dialect: Any) -> None:
    assert dialect.literal(0.1, f64) == "0.1"
    assert dialect.literal(0.10000000149011612, f32) == "0.1f"
    assert dialect.literal(-2.0, f32) == "(-2.0f)"
    assert dialect.literal(1e-8, f32) == "1e-08f"
    assert dialect.literal(-(2**63), i64) == f"(-9223372036854775807{dialect.long_suffix} - 1)"


@DIALECTS
def test_an_index_is_checked_once_per_block(dialect: Any) -> None:
    def read(table: Any, n: Any) -> Any:
        total = ops.lookup(table, n, lg.ir.constant(0, i32)) + ops.lookup(table, n, lg.ir.constant(2, i32))
        inner = ops.cond(
            total > 1.0,
            table,
            n,
            then=lg.ir.trace(lambda table, n: ops.lookup(table, n, lg.ir.constant(1, i32)), table.type, i32),
            otherwise=lg.ir.trace(lambda table, n: lg.ir.constant(0.0, f32), table.type, i32),
        )
        return total, inner

    kernel = kernel_source(lg.ir.trace(read, Tensor(f32, (4, 3)), i32), (False, True), dialect)
    assert [site.message for site in kernel.sites] == ["index out of range for axis 0"] * 2
    (plan_kernel,) = kernels(lg.ir.map_over(lg.ir.trace(read, Tensor(f32, (4, 3)), i32), (False, True)))
    assert [site.message for site in plan_kernel.sites].count("index out of range for axis 0") == 1
