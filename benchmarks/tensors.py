"""The rows of the tensors suite: programs on arrays through each library's compiler, and their first calls."""

from benchmarks.harness import Benchmark
from benchmarks.problems import Problem

COMPILERS = ("jax", "torch")
EVERYONE = ("livegrad", *COMPILERS, "torch_eager", "numpy")
DIFFERENTIATORS = ("livegrad", *COMPILERS, "torch_eager")


def rows(quick: bool) -> list[Benchmark]:
    lines, length, large = (512, 128, 128) if quick else (8192, 512, 1024)
    wide = f"{lines} × 1024"
    programs = [
        ("chain", "chain", f"elementwise chain over {wide}", lines, EVERYONE),
        ("reductions", "reductions", f"sums and maxima of {wide}", lines, EVERYONE),
        ("softmax_tensors", "softmax_tensors", f"softmax of {wide}", lines, EVERYONE),
        ("layer_norm", "layer_norm", f"layer norm of {wide}", lines, EVERYONE),
        ("attention", "attention", f"attention, 1 × 8 × {length} × 64", length, EVERYONE),
        ("attention_gradient", "attention_gradient", f"its gradient, 1 × 8 × {length} × 64", length, DIFFERENTIATORS),
        ("training_step_32", "training_step", "training step of three layers, batch 32", 32, DIFFERENTIATORS),
        ("training_step", "training_step", f"training step of three layers, batch {large}", large, DIFFERENTIATORS),
    ]
    benchmarks = [Benchmark(name, title, Problem(kind, size), names) for name, kind, title, size, names in programs]
    firsts = [("first_chain", "chain", 8), ("first_attention_gradient", "attention gradient", 64)]
    firsts.append(("first_training_step", "training step", 32))
    benchmarks += [
        Benchmark(name, f"first call of the {title}", Problem(name, size), ("livegrad", *COMPILERS))
        for name, title, size in firsts
    ]
    length, additions = (1_000, 10_000) if quick else (10_000, 1_000_000)
    benchmarks += [
        Benchmark("build", f"building a chain of {length:,} additions", Problem("build", length), ("livegrad",)),
        Benchmark(
            "long_chain", f"a chain of {additions:,} additions, built, computed and freed",
            Problem("long_chain", additions), ("livegrad",),
        ),
        Benchmark(
            "small_call", "one call of a compiled function of 64 elements", Problem("small_call", 64),
            ("livegrad", *COMPILERS), calls=500,
        ),
    ]  # fmt: skip
    return benchmarks
