"""Functions of assemblies as OpenCL C: for people who read it, and for programs that run it themselves."""

from __future__ import annotations

from livegrad.authoring.assembly.assembly import Assembly, emitters
from livegrad.authoring.assembly.contents import FunctionName
from livegrad.authoring.assembly.lower_gradient import lower_function_gradient
from livegrad.authoring.assembly.to_ir import convert
from livegrad.backends.opencl.source import opencl_source
from livegrad.ir.types import Scalar, f32


def to_opencl(assembly: Assembly, name: FunctionName, *, exact: bool = False, element: Scalar = f32) -> str:
    """A function of an assembly, with all that it calls, as OpenCL C.

    Gradient nodes are lowered to differences by their step, or with `exact` to analytic derivatives. Meshes and images
    are pointers that the function takes after its inputs.

    >>> from livegrad.authoring.assembly.expression import add_expression
    >>> shapes = add_expression(Assembly(), "ball", "length(pos) - radius", {"pos": "vector", "radius": "scalar"})
    >>> print(to_opencl(shapes, "ball"))
    float ball(float3 p0, float p1)
    {
        const float v0 = length(p0);
        return (v0 - p1);
    }
    <BLANKLINE>
    """
    ready = assembly if exact else lower_function_gradient(assembly, on_problem="raise").assembly
    return opencl_source(convert(ready, name, exact=exact, element=element).function)


emitters["opencl"] = to_opencl
