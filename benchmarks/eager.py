"""The rows of the eager suite: small operations whose results are read at once, as in a loop of plain Python.

Each library runs the same programs on vectors of three numbers, operation by operation."""

from benchmarks.harness import Benchmark
from benchmarks.problems import Problem

EAGER = ("livegrad", "torch_eager", "numpy")


def rows(quick: bool) -> list[Benchmark]:
    calls, steps = (20, 20) if quick else (1000, 200)
    titles = {
        "eager_node": "x + y of three numbers, not read",
        "eager_element": "float(x[1]) of a computed tensor",
        "eager_array": "np.asarray(x + y) of three numbers",
        "eager_sum": "float((x + y).sum()) of three numbers",
    }
    made = [Benchmark(kind, title, Problem(kind, 1), EAGER, calls=calls) for kind, title in titles.items()]
    scalars = Benchmark(
        "eager_scalars", "a compiled function of three Python numbers", Problem("eager_scalars", 1),
        ("livegrad", "jax"), calls=calls,
    )  # fmt: skip
    loops = {
        "eager_loop": f"{steps} operations, each result read",
        "eager_chain": f"{steps} operations, read at the end",
        "eager_newton": "Newton steps that are read until they vanish",
    }
    return [*made, scalars, *[Benchmark(kind, title, Problem(kind, steps), EAGER) for kind, title in loops.items()]]
