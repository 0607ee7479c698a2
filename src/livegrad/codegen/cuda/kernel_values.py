"""The dialect of the kernels of plans: CUDA C with its own support library (`prelude.py`) and exact constants.

A half is a float that is rounded after every operation. A bfloat16 is only copied and cast, as bits. A complex number
is only copied; NumPy computes with complex numbers.
"""

from __future__ import annotations

from dataclasses import replace

from livegrad.codegen.c.dialect import CUDA
from livegrad.ir.types import Scalar
from livegrad.ir.types.scalars import SCALARS

_BARE = {"f16": "float", "bf16": "unsigned short", "c64": "unsigned long long", "c128": "ulonglong2"}
# Integers that float32 cannot represent are converted by way of double, so that they are rounded once.
_TO_HALF = {
    (source.name, "f16"): "lg_round_half({0})" if source.kind == "float" else "lg_round_half((double){0})"
    for source in SCALARS.values()
    if source.kind != "complex" and source.name not in ("f16", "bf16")
}
KERNELS = replace(
    CUDA,
    scalars={**CUDA.scalars, **_BARE},
    memory={**CUDA.memory, "f16": "unsigned short"},
    loads={**CUDA.loads, "f16": "lg_from_half({0})"},
    stores={"f16": "lg_to_half({0})"},
    exact_constants=True,
    overrides={
        **CUDA.overrides,
        ("sqrt", "f32"): "lg_sqrt({0})",
        ("sin", "f32"): "lg_sin({0})",
        ("cos", "f32"): "lg_cos({0})",
        ("nextafter", "f16"): "lg_nextafter_half({0}, {1})",
    },
    casts={**_TO_HALF, ("f32", "bf16"): "lg_to_bfloat({0})", ("bf16", "f32"): "lg_from_bfloat({0})"},
)


def memory_type(type: Scalar) -> str:
    """The C type of an element in memory.

    >>> from livegrad.ir.types import f16, i64
    >>> memory_type(i64), memory_type(f16), KERNELS.scalar(f16)
    ('long long', 'unsigned short', 'float')
    """
    return KERNELS.in_memory(type)
