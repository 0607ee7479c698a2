"""A simulated CUDA driver on the host: memory, lazy streams, graphs, and kernels compiled by the C++ compiler.

Work runs as late as the rules of CUDA allow, and graph nodes run in a random order that respects their dependencies, so
a missing dependency or wait causes a wrong result. Every call is recorded.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import random
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

COMPILER = shutil.which("g++") or shutil.which("clang++")
_FOLDER = tempfile.TemporaryDirectory(prefix="livegrad-simulated-")
# Processes that share a code cache share kernels too, as with a real driver.
_KERNELS = Path(os.environ.get("LIVEGRAD_CACHE_DIR", _FOLDER.name)) / "simulated"
_one_shim = threading.Lock()
_WORDS = ctypes.c_ulonglong * 65536
_CONDITIONS = (ctypes.c_uint * 65536)()

# Declarations that NVRTC predefines.
_SHIM = """\
#define __device__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static
#define __forceinline__ inline
#define __noinline__
#define __cudart_builtin__
#define CUDARTAPI
typedef unsigned long long cudaGraphConditionalHandle;
struct sim_dim { unsigned int x, y, z; };
static sim_dim blockIdx, blockDim, gridDim;
static thread_local sim_dim threadIdx;
#include <math.h>
#include <pthread.h>
#include <string.h>
static pthread_barrier_t sim_barrier;
static unsigned sim_lanes[1024];
static inline void __syncthreads() { pthread_barrier_wait(&sim_barrier); }
static inline void __threadfence() { __sync_synchronize(); }
static pthread_barrier_t sim_warps[32];
static inline void __syncwarp(unsigned mask = ~0u) { pthread_barrier_wait(&sim_warps[threadIdx.x / 32]); }
static inline unsigned __shfl_sync(unsigned mask, unsigned value, int lane)
{
    __syncwarp(); sim_lanes[threadIdx.x] = value; __syncwarp();
    return sim_lanes[threadIdx.x / 32 * 32 + lane];
}
static inline unsigned __shfl_down_sync(unsigned mask, unsigned value, int distance)
{
    const int lane = threadIdx.x % 32 + distance;
    return __shfl_sync(mask, value, lane < 32 ? lane : threadIdx.x % 32);
}
static inline unsigned atomicInc(unsigned* p, unsigned most)
{ unsigned old = *p; *p = old >= most ? 0 : old + 1; return old; }
static inline float __int_as_float(int v) { float r; __builtin_memcpy(&r, &v, 4); return r; }
static inline float __uint_as_float(unsigned v) { float r; __builtin_memcpy(&r, &v, 4); return r; }
static inline unsigned __float_as_uint(float v) { unsigned r; __builtin_memcpy(&r, &v, 4); return r; }
static inline double __longlong_as_double(long long v) { double r; __builtin_memcpy(&r, &v, 8); return r; }
static inline void atomicMin(unsigned long long* p, unsigned long long v) { if (v < *p) *p = v; }
static inline void atomicMax(int* p, int v) { if (v > *p) *p = v; }
static inline void atomicOr(int* p, int v) { *p |= v; }
template <class T> static inline void atomicAdd(T* p, T v) { *p += v; }
static unsigned int* sim_conditions;
extern "C" void sim_setup(unsigned int* conditions) { sim_conditions = conditions; }
extern "C" void cudaGraphSetConditional(cudaGraphConditionalHandle h, unsigned int v) { sim_conditions[h] = v; }
"""
_RUNNER = """
static void* thread_NAME(void* given)
{
    void** words = (void**)given; threadIdx = {(unsigned)(unsigned long long)words[1], 0, 0};
    NAME(*(const Arguments*)words[0]); return 0;
}
extern "C" void run_NAME(const Arguments* a, unsigned int grid, unsigned int block, int together)
{
    gridDim = {grid, 1, 1}; blockDim = {block, 1, 1};
    for (unsigned b = 0; b < grid; ++b)
    {
        blockIdx = {b, 0, 0};
        if (!together) { for (unsigned t = 0; t < block; ++t) { threadIdx = {t, 0, 0}; NAME(*a); } continue; }
        pthread_t threads[1024]; void* words[1024][2];
        pthread_barrier_init(&sim_barrier, 0, block);
        for (unsigned w = 0; w < block / 32; ++w) pthread_barrier_init(&sim_warps[w], 0, 32);
        for (unsigned t = 0; t < block; ++t)
        {
            words[t][0] = (void*)a; words[t][1] = (void*)(unsigned long long)t;
            pthread_create(&threads[t], 0, thread_NAME, words[t]);
        }
        for (unsigned t = 0; t < block; ++t) pthread_join(threads[t], 0);
        pthread_barrier_destroy(&sim_barrier);
    }
}
extern "C" int size_NAME() { return sizeof(Arguments); }
"""


def _compiler(*options: str) -> subprocess.CompletedProcess[str]:
    command = [str(COMPILER), "-std=c++17", "-O0", "-w", "-fPIC", "-pthread", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _compiled_shim() -> Path:
    """The shim header, precompiled once. Several threads compile kernels concurrently."""
    path = Path(_FOLDER.name) / "shim.h"
    with _one_shim:
        if not path.exists():
            made = Path(tempfile.mkdtemp(dir=_FOLDER.name)) / "shim.h"
            made.write_text(_SHIM)
            _compiler("-x", "c++-header", str(made), "-o", f"{path}.gch")
            made.rename(path)
    return path


def compile_source(source: str, architecture: str, name: str = "kernel") -> bytes:
    """Stands in for NVRTC: the path of a shared library."""
    text = re.sub(r'asm\("div[^;]*;[^;]*;', "value = a / b;", source)
    text = re.sub(r'asm\("sqrt[^;]*;[^;]*;', "value = sqrtf(x);", text)
    text = re.sub(r'asm( volatile)?\("[^"]*"[^;]*;', ";", text)
    text = text.replace("__shared__ alignas(16)", "alignas(16) static")
    declared = 'extern "C" __device__ __cudart_builtin__ void CUDARTAPI cudaGraphSetConditional('
    text = text.replace(declared, "void declared_before(")
    path = _KERNELS / hashlib.sha256((_SHIM + _RUNNER + text).encode()).hexdigest()
    if not path.with_suffix(".so").exists():
        kernels = re.findall(r"__global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(", text)
        runners = "".join(_RUNNER.replace("NAME", kernel) for kernel in kernels)
        # Built in a separate folder and then moved, because another thread may need the same kernel.
        _KERNELS.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=_KERNELS))
        made = folder / "kernel"
        made.with_suffix(".cpp").write_text(text + runners)
        files = ["-o", str(made.with_suffix(".so")), str(made.with_suffix(".cpp"))]
        done = _compiler("-shared", "-include", str(_compiled_shim()), *files)
        if "internal compiler error" in done.stderr:  # GCC's problems with precompiled headers
            made.with_suffix(".cpp").write_text(_SHIM + text + runners)
            done = _compiler("-shared", *files)
        if done.returncode:
            raise AssertionError(f"the simulated compiler refuses {name}:\n{done.stderr}\n{source}")
        made.with_suffix(".so").rename(path.with_suffix(".so"))
        shutil.rmtree(folder)
    own = source[source.index("struct Arguments") :]
    shares = b"1" if re.search("__syncthreads|_fold|_lane|_scan", own) else b"0"
    return b"SIMULATED " + shares + str(path.with_suffix(".so")).encode()


class Result(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901


OK = Result.CUDA_SUCCESS


class Names:
    """An enumeration whose values do not matter."""

    def __getattr__(self, name: str) -> str:
        return name


class Function:
    """A kernel."""

    def __init__(self, library: ctypes.CDLL, name: str, together: bool) -> None:
        self.name, self.together = name, together  # threads of a block synchronise
        self.size = getattr(library, f"size_{name}")()
        self._run = getattr(library, f"run_{name}")

    def run(self, words: bytes, grid: int, threads: int) -> None:
        self._run(ctypes.create_string_buffer(words, len(words)), grid, threads, self.together)


class Node:
    """A node of a graph: its work, and its dependencies."""

    def __init__(self, kind: str, before: list[Node]) -> None:
        self.kind, self.before = kind, list(before)
        self.work: Callable[[], Any] | None = None
        self.bodies: list[Graph] = []
        self.condition, self.type, self.enabled = 0, "", True


class Graph:
    is_gone = False

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def __int__(self) -> int:
        return id(self)


class Executable:
    """An instantiated graph, which has a copy of the work of each node."""

    is_gone = False

    def __init__(self, graph: Graph) -> None:
        self.work: dict[Node, Any] = {}
        self.graph = graph
        self._copy(graph)

    def _copy(self, graph: Graph) -> None:
        for node in graph.nodes:
            self.work[node] = node.work
            for body in node.bodies:
                self._copy(body)


class SimulatedDriver:
    """The part of `cuda.bindings.driver` that livegrad calls."""

    CUevent_flags = CUstream_flags = CUmemorytype = CUgraphNodeType = CUgraphConditionalNodeType = Names()
    CUstreamCaptureMode = CUdevice_attribute = Names()
    CUresult = Result

    def __init__(self, seed: int = 0, memory: int = 1 << 30) -> None:
        self.random = random.Random(seed)
        self.calls: list[str] = []
        self.total = self.free = memory
        self._memory: dict[int, Any] = {}
        self._pinned: dict[int, Any] = {}
        self._queue: list[Callable[[], Any]] = []
        self._handles = 0
        self._clock = 0.0
        self._streams = 0
        self._capturing: Graph | None = None
        self.refuse: dict[str, Result] = {}  # calls that fail the next time
        self.launched_nodes = 0

    def __getattribute__(self, name: str) -> Any:
        actual = object.__getattribute__(self, name)
        if name.startswith("cu"):
            return self._recorded(name, actual)
        return actual

    def _recorded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            refused = self.refuse.pop(name, None)
            return (refused, None) if refused is not None else function(*arguments)

        return call

    def count(self, name: str) -> int:
        """How often a call was made."""
        return self.calls.count(name)

    def _drain(self) -> None:
        queue, self._queue = self._queue, []
        for work in queue:
            work()

    # --- device, context ---

    def cuInit(self, flags: int) -> Any:
        return (OK,)

    def cuDeviceGetCount(self) -> Any:
        return OK, 1

    def cuDeviceGet(self, number: int) -> Any:
        return OK, 0

    def cuDeviceGetName(self, size: int, device: int) -> Any:
        return OK, b"simulated\0"

    def cuDeviceGetAttribute(self, attribute: str, device: int) -> Any:
        return OK, 9 if attribute.endswith("MAJOR") else 0

    def cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        return OK, "context"

    def cuCtxSetCurrent(self, context: Any) -> Any:
        return (OK,)

    def cuDriverGetVersion(self) -> Any:
        return OK, 13000

    def cuGetErrorString(self, status: Result) -> Any:
        return OK, status.name.lower().encode()

    # --- memory ---

    CU_MEMHOSTALLOC_DEVICEMAP = CU_MEMHOSTALLOC_PORTABLE = 0
    CUmemPool_attribute = Names()
    cuuint64_t = int

    def cuCtxGetDevice(self) -> Any:
        return OK, 0

    def cuDeviceGetDefaultMemPool(self, device: int) -> Any:
        return OK, "pool"

    def cuMemPoolSetAttribute(self, pool: Any, attribute: Any, value: Any) -> Any:
        return (OK,)

    def cuMemPoolGetAttribute(self, pool: Any, attribute: Any) -> Any:
        return OK, self.total - self.free

    def cuMemPoolTrimTo(self, pool: Any, size: int) -> Any:
        return (OK,)

    def cuMemHostGetDevicePointer(self, address: int, flags: int) -> Any:
        return OK, address

    def cuMemAllocAsync(self, size: int, stream: Any) -> Any:
        if size > self.free:
            return Result.CUDA_ERROR_OUT_OF_MEMORY, 0
        memory = np.full(size + 256, 0xCD, np.uint8)
        address = -(-memory.ctypes.data // 256) * 256
        self._memory[address] = memory, size
        self.free -= size
        return OK, address

    def cuMemFreeAsync(self, address: int, stream: Any) -> Any:
        self._queue.append(lambda: self._free(int(address)))
        return (OK,)

    def _free(self, address: int) -> None:
        memory, size = self._memory.pop(int(address))
        memory[:] = 0xEE  # exposes later reads
        self.free += size

    def cuMemGetInfo(self) -> Any:
        return OK, self.free, self.total

    def cuMemHostAlloc(self, size: int, flags: int) -> Any:
        memory = np.full(size, 0xCD, np.uint8)
        self._pinned[memory.ctypes.data] = memory
        return OK, memory.ctypes.data

    def cuMemFreeHost(self, address: int) -> Any:
        self._drain()
        del self._pinned[int(address)]
        return (OK,)

    def cuMemcpyHtoDAsync(self, target: int, source: int, size: int, stream: Any) -> Any:
        staged = ctypes.string_at(int(source), size)
        self._queue.append(lambda: ctypes.memmove(int(target), staged, size))
        return (OK,)

    def cuMemcpyDtoHAsync(self, target: int, source: int, size: int, stream: Any) -> Any:
        self._queue.append(lambda: ctypes.memmove(int(target), int(source), size))
        if int(target) not in self._pinned:
            self._drain()  # a copy to pageable memory is synchronous
        return (OK,)

    def cuMemcpyDtoDAsync(self, target: int, source: int, size: int, stream: Any) -> Any:
        self._enqueue("copy", stream, self._copy_work(int(target), int(source), size))
        return (OK,)

    def cuMemsetD8Async(self, target: int, value: int, size: int, stream: Any) -> Any:
        self._enqueue("memset", stream, lambda: ctypes.memset(int(target), value, size))
        return (OK,)

    def _enqueue(self, kind: str, stream: Any, work: Callable[[], Any]) -> None:
        """Work on a stream, which may be under capture."""
        if self._capturing is not None and stream == 77:
            node = Node(kind, self._capturing.nodes[-1:])
            node.work = work
            self._capturing.nodes.append(node)
        else:
            self._queue.append(work)

    @staticmethod
    def _copy_work(target: int, source: int, size: int) -> Callable[[], Any]:
        return lambda: ctypes.memmove(target, source, size)

    # --- streams and events ---

    def cuStreamCreate(self, flags: Any) -> Any:
        self._streams += 1
        return OK, 77 if self._streams > 1 else 1

    def cuStreamDestroy(self, stream: Any) -> Any:
        return (OK,)

    def cuStreamSynchronize(self, stream: Any) -> Any:
        self._drain()
        return (OK,)

    def cuStreamQuery(self, stream: Any) -> Any:
        return (Result.CUDA_ERROR_NOT_READY if self._queue else OK,)

    def cuStreamBeginCapture(self, stream: Any, mode: Any) -> Any:
        self._capturing = Graph()
        return (OK,)

    def cuStreamEndCapture(self, stream: Any) -> Any:
        graph, self._capturing = self._capturing, None
        return OK, graph

    def cuEventCreate(self, flags: Any) -> Any:
        return OK, SimpleNamespace(pending=0, time=0.0, is_gone=False)

    def cuEventRecord(self, event: Any, stream: Any) -> Any:
        assert not event.is_gone
        event.pending += 1
        self._queue.append(lambda: self._record(event, waited=True))
        return (OK,)

    def _record(self, event: Any, waited: bool = False) -> None:
        event.pending -= waited
        self._clock += 1.0
        event.time = self._clock

    def cuEventQuery(self, event: Any) -> Any:
        assert not event.is_gone
        return (Result.CUDA_ERROR_NOT_READY if event.pending else OK,)

    def cuEventSynchronize(self, event: Any) -> Any:
        assert not event.is_gone
        if event.pending:
            self._drain()
        return (OK,)

    def cuEventElapsedTime(self, start: Any, stop: Any) -> Any:
        if start.is_gone or stop.is_gone:
            return Result.CUDA_ERROR_CONTEXT_IS_DESTROYED, None  # the error of a real driver for a destroyed event
        return OK, stop.time - start.time

    def cuEventDestroy(self, event: Any) -> Any:
        self._give_back(event)
        return (OK,)

    # --- code ---

    def cuModuleLoadData(self, address: int) -> Any:
        code = ctypes.string_at(int(address)).decode()
        assert code.startswith("SIMULATED ")
        return OK, (ctypes.CDLL(code[11:]), code[10] == "1")

    def cuModuleGetFunction(self, module: Any, name: bytes) -> Any:
        library, together = module
        library.sim_setup(_CONDITIONS)
        return OK, Function(library, name.decode(), together)

    def cuLaunchKernel(self, function: Function, *shape_stream_and_words: Any) -> Any:
        grid, _, _, threads, _, _, _, stream, pointers, _ = shape_stream_and_words
        node = SimpleNamespace(func=function, gridDimX=grid, blockDimX=threads, kernelParams=pointers)
        self._enqueue("kernel", stream, self._kernel_work(node))
        return (OK,)

    # --- graphs ---

    CUDA_KERNEL_NODE_PARAMS = CUDA_MEMSET_NODE_PARAMS = CUDA_MEMCPY3D = SimpleNamespace

    @staticmethod
    def CUgraphNodeParams() -> Any:
        return SimpleNamespace(conditional=SimpleNamespace())

    def cuGraphCreate(self, flags: int) -> Any:
        return OK, Graph()

    def cuGraphDestroy(self, graph: Graph) -> Any:
        self._give_back(graph)
        return (OK,)

    @staticmethod
    def _give_back(handle: Any) -> None:
        assert not handle.is_gone, "given back twice"
        handle.is_gone = True

    def _add(self, graph: Graph, kind: str, before: list[Node]) -> Node:
        assert all(node in graph.nodes for node in before), "a dependency on a node of another graph"
        node = Node(kind, before)
        graph.nodes.append(node)
        return node

    def _kernel_work(self, p: Any) -> Callable[[], None]:
        words = ctypes.cast(int(p.kernelParams), ctypes.POINTER(ctypes.c_void_p))[0]
        given = ctypes.string_at(words, p.func.size)  # the driver copies arguments when a node is set
        function, grid, threads = p.func, p.gridDimX, p.blockDimX
        return lambda: function.run(given, grid, threads)

    def cuGraphAddKernelNode(self, graph: Graph, before: list[Node], count: int, parameters: Any) -> Any:
        node = self._add(graph, "kernel", before)
        node.work = self._kernel_work(parameters)
        return OK, node

    def cuGraphAddMemsetNode(self, graph: Graph, before: list[Node], count: int, p: Any, context: Any) -> Any:
        node = self._add(graph, "memset", before)
        target, size, value = int(p.dst), p.width * p.elementSize, p.value & 0xFF
        node.work = lambda: ctypes.memset(target, value, size)  # type: ignore[assignment,return-value]
        return OK, node

    def cuGraphAddMemcpyNode(self, graph: Graph, before: list[Node], count: int, p: Any, context: Any) -> Any:
        node = self._add(graph, "copy", before)
        node.work = self._copy_work(int(p.dstDevice), int(p.srcDevice), p.WidthInBytes)
        return OK, node

    def cuGraphAddEventRecordNode(self, graph: Graph, before: list[Node], count: int, event: Any) -> Any:
        node = self._add(graph, "event", before)
        node.work = lambda: self._record(event)
        return OK, node

    def cuGraphAddChildGraphNode(self, graph: Graph, before: list[Node], count: int, child: Graph) -> Any:
        node = self._add(graph, "child", before)
        node.work = self._child_work(child)
        return OK, node

    def _child_work(self, child: Graph) -> Callable[[], None]:
        assert not child.is_gone
        executable = Executable(child)
        return lambda: self._run_graph(child, executable)

    def cuGraphConditionalHandleCreate(self, graph: Graph, context: Any, default: int, flags: int) -> Any:
        self._handles += 1
        return OK, self._handles

    def cuGraphAddNode(self, graph: Graph, before: list[Node], data: Any, count: int, parameters: Any) -> Any:
        own = parameters.conditional
        node = self._add(graph, "conditional", before)
        node.condition, node.type = int(own.handle), own.type
        node.bodies = own.phGraph_out = [Graph() for _ in range(own.size)]
        return OK, node

    def cuGraphInstantiate(self, graph: Graph, flags: int) -> Any:
        for node in graph.nodes:
            for body in node.bodies:
                self._check_turns(body)
        return OK, Executable(graph)

    def _check_turns(self, body: Graph) -> None:
        """Real drivers can hang on a body with unordered conditional nodes."""
        behind: dict[Node, set[Node]] = {}  # the dependencies of each node, in order of addition
        inner: list[Node] = []
        for node in body.nodes:
            behind[node] = set(node.before).union(*(behind[before] for before in node.before))
            if node.bodies:
                assert behind[node].issuperset(inner), "conditional nodes side by side inside of a body"
                inner.append(node)
                for own in node.bodies:
                    self._check_turns(own)

    def cuGraphExecDestroy(self, executable: Executable) -> Any:
        self._give_back(executable)
        return (OK,)

    def cuGraphExecKernelNodeSetParams(self, executable: Executable, node: Node, parameters: Any) -> Any:
        assert node in executable.work
        assert not executable.is_gone
        executable.work[node] = self._kernel_work(parameters)
        return (OK,)

    def cuGraphExecChildGraphNodeSetParams(self, executable: Executable, node: Node, child: Graph) -> Any:
        assert not executable.is_gone
        executable.work[node] = self._child_work(child)
        return (OK,)

    def cuGraphLaunch(self, executable: Executable, stream: Any) -> Any:
        assert not executable.is_gone
        copy = Executable(executable.graph)
        copy.work = dict(executable.work)
        self._queue.append(lambda: self._run_graph(executable.graph, copy))
        return (OK,)

    def _run_graph(self, graph: Graph, executable: Executable) -> None:
        waiting = {node: set(node.before) for node in graph.nodes}
        while waiting:
            free = [node for node, before in waiting.items() if not before]
            node = self.random.choice(free)
            del waiting[node]
            for before in waiting.values():
                before.discard(node)
            self.launched_nodes += 1
            if node.bodies:
                self._run_conditional(node, executable)
            else:
                executable.work[node]()

    def _run_conditional(self, node: Node, executable: Executable) -> None:
        chosen = _CONDITIONS[node.condition]
        if node.type == "CU_GRAPH_COND_TYPE_WHILE":
            while _CONDITIONS[node.condition]:
                self._run_graph(node.bodies[0], executable)
        elif node.type == "CU_GRAPH_COND_TYPE_SWITCH":
            if chosen < len(node.bodies):
                self._run_graph(node.bodies[chosen], executable)
        elif chosen or len(node.bodies) > 1:
            self._run_graph(node.bodies[0 if chosen else 1], executable)
