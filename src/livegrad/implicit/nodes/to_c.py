"""Converts node-graph functions to readable OpenCL C and CUDA C."""

from __future__ import annotations

from livegrad.codegen.c import CUDA, OPENCL, Dialect, function_source
from livegrad.implicit.nodes.assembly import Assembly, require_assembly
from livegrad.implicit.nodes.contents import FunctionName
from livegrad.implicit.nodes.dead_code import eliminate_dead_code
from livegrad.implicit.nodes.lower_gradient import lower_function_gradient
from livegrad.implicit.nodes.to_ir import convert
from livegrad.ir.types import Scalar, f32


def to_opencl(assembly: Assembly, name: FunctionName, *, exact: bool = False, element: Scalar = f32) -> str:
    """Returns a function of an assembly and its callees as OpenCL C.

    Gradient nodes become central differences with the step of the node, or analytic derivatives with `exact`. Meshes
    and images are passed as pointers after the inputs of the function.

    >>> from livegrad.implicit.nodes.expression import add_expression
    >>> shapes = add_expression(Assembly(), "ball", "length(pos) - radius", {"pos": "vector", "radius": "scalar"})
    >>> print(to_opencl(shapes, "ball"))
    float ball(float3 p0, float p1)
    {
        const float v0 = length(p0);
        return (v0 - p1);
    }
    <BLANKLINE>
    """
    return _to_c(OPENCL, assembly, name, exact, element)


def to_cuda(assembly: Assembly, name: FunctionName, *, exact: bool = False, element: Scalar = f32) -> str:
    """Returns a function of an assembly and its callees as CUDA C device functions; see `to_opencl`.

    >>> from livegrad.implicit.nodes.expression import add_expression
    >>> print(to_cuda(add_expression(Assembly(), "wave", "sin(pos.x) * 2", {"pos": "vector"}), "wave"))
    __device__ inline float wave(float3 p0)
    {
        const float v0 = sinf(p0.x);
        return (v0 * 2.0f);
    }
    <BLANKLINE>
    """
    return _to_c(CUDA, assembly, name, exact, element)


def _to_c(dialect: Dialect, assembly: Assembly, name: FunctionName, exact: bool, element: Scalar) -> str:
    require_assembly(assembly)
    function = assembly.function(name)
    reduced = eliminate_dead_code(assembly, {function.id: function.outputs})
    lowered = reduced if exact else lower_function_gradient(reduced, on_problem="raise").assembly
    return function_source(convert(lowered, name, exact=exact, element=element).function, dialect)
