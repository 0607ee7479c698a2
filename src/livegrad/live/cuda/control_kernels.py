"""Launches the engine's own kernels, which set conditions of regions, count runs, append rows and measure time.

In: the type of a control value. Out: launches. Every argument is one slot, as in all kernels.
"""

from __future__ import annotations

from typing import Any

from livegrad.codegen.cuda.kernel_values import memory_type
from livegrad.diagnostics import CompileError
from livegrad.ir.types import Scalar
from livegrad.ir.types.scalars import SCALARS
from livegrad.runtime.cuda.cuda_graph import Launch
from livegrad.runtime.cuda.modules import load_function

_THREADS = 256  # per block
CONTROL_TYPES = tuple(type for type in SCALARS.values() if type.kind != "complex")

# `counts` has the number of runs of each body of the region.
_CONTROL = """\
extern "C" __device__ __cudart_builtin__ void CUDARTAPI cudaGraphSetConditional(
    cudaGraphConditionalHandle handle, unsigned int value);

struct Arguments { const control_type* control; unsigned long long condition; long long* counts;
                   long long bodies; long long* index; };

__device__ inline bool is_set(control_type value) { return IS_SET(value); }
__device__ inline void go(const Arguments& a, unsigned int value) { cudaGraphSetConditional(a.condition, value); }

extern "C" __global__ void begin_if(const __grid_constant__ Arguments a)
{
    const bool chosen = is_set(*a.control);
    if (chosen || a.bodies > 1) a.counts[chosen ? 0 : 1] += 1;
    go(a, chosen);
}
extern "C" __global__ void begin_while(const __grid_constant__ Arguments a) { go(a, is_set(*a.control)); }
extern "C" __global__ void next_while(const __grid_constant__ Arguments a)
{
    a.counts[0] += 1;
    go(a, is_set(*a.control));
}
extern "C" __global__ void begin_switch(const __grid_constant__ Arguments a)
{
    const long long body = (long long)*a.control;
    const bool exists = body >= 0 && body < a.bodies;
    if (exists) a.counts[body] += 1;
    go(a, exists ? (unsigned int)body : 0xffffffffu);
}
extern "C" __global__ void begin_for(const __grid_constant__ Arguments a)
{
    *a.index = 0;
    go(a, 0 < (long long)*a.control);
}
extern "C" __global__ void next_for(const __grid_constant__ Arguments a)
{
    a.counts[0] += 1;
    go(a, ++*a.index < (long long)*a.control);
}
"""

CONTROL_SLOTS = ("control", "condition", "counts", "bodies", "index")

_APPEND = """\
struct Arguments { const unsigned char* rows; const long long* emitted; unsigned char* values; long long* count;
                   long long* total; long long* range; long long most; long long capacity; long long row_bytes; };

// One writer after the other: `range` has the first row and the number of rows of this writer.
extern "C" __global__ void append_count(const __grid_constant__ Arguments a)
{
    long long room = *a.emitted < a.most ? *a.emitted : a.most;
    if (room > a.capacity - *a.count) room = a.capacity - *a.count;
    a.range[0] = *a.count;
    a.range[1] = room;
    *a.count += room;
    *a.total += *a.emitted;
}
extern "C" __global__ void append_rows(const __grid_constant__ Arguments a)
{
    const long long bytes = a.range[1] * a.row_bytes, start = a.range[0] * a.row_bytes;
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long k = (long long)blockIdx.x * blockDim.x + threadIdx.x; k < bytes; k += step)
        a.values[start + k] = a.rows[k];
}
"""

APPEND_SLOTS = ("rows", "emitted", "values", "count", "total", "range", "most", "capacity", "row_bytes")

# A slot has the time of the last start and the sum of all durations, in nanoseconds.
_TIME = """\
struct Arguments { unsigned long long* slot; };
__device__ inline unsigned long long now()
{ unsigned long long time; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time)); return time; }
extern "C" __global__ void time_start(const __grid_constant__ Arguments a) { a.slot[0] = now(); }
extern "C" __global__ void time_stop(const __grid_constant__ Arguments a) { a.slot[1] += now() - a.slot[0]; }
"""


def control_source(type: Scalar) -> str:
    """CUDA C of the kernels that set conditions from a control value of this type."""
    if type.kind == "complex":
        raise CompileError(f"the control value of a region cannot be {type}")
    # Half-precision values are only compared with zero: the bits without the sign.
    is_half = type.name in ("f16", "bf16")
    is_set = "((value & 0x7fff) != 0)" if is_half else "(value != 0)"
    return f"typedef {memory_type(type)} control_type;\n#define IS_SET(value) {is_set}\n{_CONTROL}"


def control_launch(symbol: str, type: Scalar, **slots: int) -> Launch:
    """A launch of one of the kernels that set conditions."""
    if type.name in ("f16", "bf16") and symbol.endswith(("_for", "_switch")):
        raise CompileError(f"a count or an index cannot be {type}")
    return _launch(control_source(type), symbol, CONTROL_SLOTS, slots)


def append_launch(symbol: str, **slots: int) -> Launch:
    """A launch of one of the kernels that append."""
    launch = _launch(_APPEND, symbol, APPEND_SLOTS, slots)
    if symbol == "append_rows":
        bytes = slots["most"] * slots["row_bytes"]
        launch.renew(launch.parameters.func, max(1, min(1024, -(-bytes // _THREADS))), _THREADS, len(APPEND_SLOTS))
        _fill(launch, APPEND_SLOTS, slots)
    return launch


def time_launch(symbol: str, slot: int) -> Launch:
    """A launch of one of the timer kernels."""
    return _launch(_TIME, symbol, ("slot",), {"slot": slot})


def engine_sources() -> dict[str, str]:
    """All CUDA C of the engine, for tests that compile it without a GPU."""
    from_types = {f"control_{type.name}": control_source(type) for type in CONTROL_TYPES}
    return {**from_types, "append": _APPEND, "time": _TIME}


def _launch(source: str, symbol: str, names: tuple[str, ...], slots: dict[str, int]) -> Launch:
    launch = Launch(load_function(source, symbol, symbol), 1, 1, len(names))
    _fill(launch, names, slots)
    return launch


def _fill(launch: Launch, names: tuple[str, ...], slots: dict[str, Any]) -> None:
    for name, value in slots.items():
        launch.slots[names.index(name)] = value
