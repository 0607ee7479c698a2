"""The baseline: handwritten LLVM IR with explicit vectors for one function, independent of livegrad's emitter.

Two plain Python threads call it through ctypes, which releases the GIL. Also memcpy by two threads, for bandwidth."""

import ctypes
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from benchmarks import handwritten_math as math
from benchmarks.problems import Array, Problem, Run, inputs, parameters, program
from benchmarks.sdf import Program

THREADS = 2
CHUNK = 1 << 18  # points; a multiple of every vector width
KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * 5)

OPERATIONS: dict[str, Callable[..., str]] = {
    "add": lambda w, a, b: w.binary("fadd", a, b),
    "sub": lambda w, a, b: w.binary("fsub", a, b),
    "mul": lambda w, a, b: w.binary("fmul", a, b),
    "sqrt": lambda w, a: w.intrinsic("sqrt", a),
    "abs": lambda w, a: w.intrinsic("fabs", a),
    "min": lambda w, a, b: w.smaller(a, b),
    "max": lambda w, a, b: w.larger(a, b),
    "sin": math.sin,
    "exp": math.exp,
    "log": math.log,
    "tanh": math.tanh,
    "pow": math.power,
}

# Stack realignment keeps spilled vectors aligned; without the width attributes LLVM prefers 256 bits.
TEMPLATE = """
define void @kernel(i64 %begin, i64 %end, ptr noalias %x, ptr noalias %y, ptr noalias %z, ptr noalias %p,
                    ptr noalias %out) #0 {{
entry:
{parameters}
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
{body}
  %to = getelementptr inbounds float, ptr %out, i64 %i
  store {float} {result}, ptr %to, align 4
  %next = add nuw nsw i64 %i, {lanes}
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %exit
exit:
  ret void
}}
{declarations}
attributes #0 = {{ nounwind "stackrealign" "prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}" }}
"""


def register_bits() -> int:
    features = llvm.get_host_cpu_features()
    return 512 if features.get("avx512f") else 256 if features.get("avx2") else 128


def load_parameter(index: int, vector: str, lanes: int) -> str:
    return (
        f"  %pa{index} = getelementptr inbounds float, ptr %p, i64 {index}\n"
        f"  %ps{index} = load float, ptr %pa{index}, align 4\n"
        f"  %pi{index} = insertelement {vector} poison, float %ps{index}, i32 0\n"
        f"  %p{index} = shufflevector {vector} %pi{index}, {vector} poison, <{lanes} x i32> zeroinitializer"
    )


def kernel_text(task: Program, bits: int) -> str:
    """A loop over whole vectors, two registers wide: two independent chains hide the latency of each operation."""
    lanes = bits // 16
    writer = math.Writer(lanes)
    names: list[str] = []
    for instruction in task.instructions:
        if instruction.op == "input":
            address = writer.emit(f"getelementptr inbounds float, ptr %{'xyz'[int(instruction.value)]}, i64 %i")
            names.append(writer.emit(f"load {writer.float}, ptr {address}, align 4"))
        elif instruction.op == "parameter":
            names.append(f"%p{int(instruction.value)}")
        elif instruction.op == "literal":
            names.append(writer.literal(instruction.value))
        else:
            operands = (names[i] for i in instruction.operands)
            names.append(OPERATIONS[instruction.op](writer, *operands))
    return TEMPLATE.format(
        parameters="\n".join(load_parameter(i, writer.float, lanes) for i in range(len(task.parameters))),
        body="\n".join(writer.lines),
        float=writer.float,
        result=names[-1],
        lanes=lanes,
        declarations="\n".join(sorted(writer.declarations)),
        bits=bits,
    )


def compile_kernel(text: str) -> tuple[Any, Any]:
    """The callable, and the engine that owns its code and must outlive it."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        jit=True,
        codemodel="small",
    )
    module = llvm.parse_assembly(text)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return KERNEL(engine.get_function_address("kernel")), engine


class Parallel:
    """Calls work(0 … count - 1) on two threads, each taking the next free index; a run returns `result`."""

    def __init__(self, work: Callable[[int], None], count: int, result: Array, owners: tuple[Any, ...]) -> None:
        self.work, self.count, self.result = work, count, result
        self.owners = owners  # Kept alive: the work holds only addresses.
        self.pool = ThreadPoolExecutor(THREADS)

    def take(self, indices: Iterator[int]) -> None:
        while (index := next(indices)) < self.count:
            self.work(index)

    def __call__(self) -> Array:
        indices = itertools.count()
        for future in [self.pool.submit(self.take, indices) for _ in range(THREADS)]:
            future.result()
        return self.result


def build_sdf(problem: Problem) -> Run:
    arrays, values = inputs(problem), parameters(problem)
    if problem.size % CHUNK:
        raise ValueError(f"the handwritten kernel takes multiples of {CHUNK} points, found {problem.size}")
    kernel, engine = compile_kernel(kernel_text(program(problem), register_bits()))
    out = np.zeros_like(arrays[0])
    pointers = [array.ctypes.data for array in (*arrays, values, out)]

    def work(index: int) -> None:
        kernel(index * CHUNK, (index + 1) * CHUNK, *pointers)

    return Parallel(work, problem.size // CHUNK, out, (engine, arrays, values))


def build_memcpy(problem: Problem) -> Run:
    (array,) = inputs(problem)
    out = np.zeros_like(array)
    share = array.nbytes // THREADS
    source, target = array.ctypes.data, out.ctypes.data

    def work(index: int) -> None:
        ctypes.memmove(target + index * share, source + index * share, share)

    return Parallel(work, THREADS, out, (array,))


BUILDERS = {"sdf_algebraic": build_sdf, "sdf_transcendental": build_sdf, "memcpy": build_memcpy}
