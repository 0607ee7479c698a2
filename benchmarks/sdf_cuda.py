"""The distance functions over 64M points on a GPU: value, gradient by points and by parameters, beside JAX and PyTorch.

Its rows are in `engine_sdf`. `python -m benchmarks.sdf_cuda [POINTS [CONTENDERS]]` measures each contender in a
process of its own and prints one table: points lie on the device and results stay there, each sample ends when the
device has done the work, and the first call includes tracing and compiling, but not the start of the device."""

import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import sdf
from benchmarks.contenders import OPERATIONS, Unavailable
from benchmarks.machine import describe
from benchmarks.problems import NUMPY_OPERATIONS, SDF_CUDA, Problem, agrees, expected, inputs, probe
from benchmarks.record import write_record
from livegrad import ops
from livegrad.ir.dimension import Dimension
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, f32
from livegrad.runtime.object_cache import CacheSettings, ObjectCache, set_default_cache

VARIANTS: dict[str, Callable[[], sdf.Program]] = {
    "algebraic": sdf.algebraic,
    "transcendental": sdf.transcendental,
}
WANTED = ("value", "by_point", "by_parameter")
PREFIX = SDF_CUDA
KINDS = tuple(f"{variant}_{wanted}" for variant in VARIANTS for wanted in WANTED)
CONTENDERS = ("livegrad", "livegrad_ieee", "jax", "torch")
PEERS = {"jax": "jax_gpu", "torch": "torch_gpu"}  # as the harness names them
REQUIRED = (
    "at least 1 × the speed of jax_gpu or torch_gpu",
    "first result at least 3 × sooner",
    "first result from code on disk at most 20 ms",
)
SAMPLES = 30
WARM_UP = 0.4  # seconds: the device takes a while to reach its clock
Run = Callable[[], Any]  # starts the work and gives its results, on the device
Wait = Callable[[Any], None]  # returns when the work has ended


def program_of(kind: str) -> sdf.Program:
    return VARIANTS[kind.partition("_")[0]]()


# --- livegrad --------------------------------------------------------------------------------------------------------


def function_of(kind: str) -> Function:
    """(coordinates, parameters) → the results of the kind: distances, their gradients, or sums of those."""
    task, wanted = program_of(kind), kind.partition("_")[2]
    parameter_count = len(task.parameters)
    types = [f32] * (3 + parameter_count)

    def distance(*values: Node) -> Node:
        return sdf.evaluate(task, values[:3], values[3:], OPERATIONS, literal=lambda value: constant(value, f32))

    at_point = trace(distance, *types)
    axis = Tensor(f32, (Dimension.symbol("n"),))
    if wanted == "value":
        return trace(lambda *values: ops.make_map(at_point, *values), *[axis] * 3, *[f32] * parameter_count)
    argnums = range(3) if wanted == "by_point" else range(3, 3 + parameter_count)

    def gradient(*values: Node) -> tuple[Node, ...]:
        pulled = ops.bwd_diff(*values, constant(1.0, f32), function=at_point)
        return tuple(ops.get(pulled, index=argnum) for argnum in argnums)

    each = trace(gradient, *types)

    def everywhere(*values: Node) -> tuple[Node, ...]:
        result = ops.make_map(each, *values, summed=[wanted == "by_parameter"] * len(argnums))
        return tuple(ops.get(result, index=index) for index in range(len(argnums)))

    return trace(everywhere, *[axis] * 3, *[f32] * parameter_count)


def livegrad_run(kind: str, coordinates: Sequence[Any], ieee: bool) -> tuple[Callable[[], Run], Wait, Run]:
    """A factory of runs, a function that waits for one, and a run from code on disk."""
    cuda = import_module("livegrad.runtime.cuda")
    driver = import_module("livegrad.runtime.cuda.driver")
    modules = import_module("livegrad.runtime.cuda.modules")
    compiler = import_module("livegrad.runtime.cuda.nvrtc")
    held = [cuda.DeviceArray.from_host(array) for array in coordinates]
    numbers = program_of(kind).parameters
    cuda.CudaFunction(trace(lambda x: x + 1.0, f32))(1.0)  # starts the device, as for the others
    set_default_cache(ObjectCache(CacheSettings(Path(tempfile.mkdtemp()))))

    def wait(results: Any) -> None:
        driver.check(driver.driver.cuStreamSynchronize(driver.device().stream))

    def make() -> Run:
        compiled = cuda.CudaFunction(function_of(kind), ieee)
        return lambda: compiled.on_device(*held, *numbers)

    again = cuda.CudaFunction(function_of(kind), ieee)

    def from_disk() -> Any:
        modules.forget_functions()
        compiler.forget_cubins()
        again.forget_plans()
        return again.on_device(*held, *numbers)

    return make, wait, from_disk


# --- peers -----------------------------------------------------------------------------------------------------------


def jax_run(kind: str, coordinates: Sequence[Any]) -> tuple[Callable[[], Run], Wait]:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others use the device too
    jax: Any = import_module("jax")
    jnp: Any = import_module("jax.numpy")
    operations = {name: getattr(jnp, function.__name__) for name, function in NUMPY_OPERATIONS.items()}
    # Else each point within a box has the gradient NaN in JAX.
    safe = operations if kind.endswith("value") else operations | {"sqrt": lambda x: jnp.sqrt(jnp.maximum(x, 1e-24))}
    task, wanted = program_of(kind), kind.partition("_")[2]
    held = [jnp.asarray(array) for array in (*coordinates, np.array(task.parameters, np.float32))]
    jax.block_until_ready(jnp.zeros(16) + 1.0)

    def make() -> Run:
        def distance(x: Any, y: Any, z: Any, p: Any) -> Any:
            return sdf.evaluate(task, (x, y, z), [p[i] for i in range(len(task.parameters))], safe)

        def total(*arguments: Any) -> Any:
            return jnp.sum(distance(*arguments))

        argnums = (0, 1, 2) if wanted == "by_point" else 3
        jitted = jax.jit(distance if wanted == "value" else jax.grad(total, argnums))
        return lambda: jitted(*held)

    return make, jax.block_until_ready


def torch_run(kind: str, coordinates: Sequence[Any]) -> tuple[Callable[[], Run], Wait]:
    torch: Any = import_module("torch")
    setattr(import_module("torch._inductor.config"), "force_disable_caches", True)  # noqa: B010 - a module's name
    names = {"sub": "sub", "mul": "mul", "add": "add", "min": "minimum", "max": "maximum"}
    operations = {name: getattr(torch, names.get(name, name)) for name in NUMPY_OPERATIONS if name != "neg"}
    clamped = {"sqrt": lambda x: torch.sqrt(torch.clamp(x, min=1e-24))}
    safe = operations if kind.endswith("value") else operations | clamped
    task, wanted = program_of(kind), kind.partition("_")[2]
    held = [torch.from_numpy(array).cuda() for array in (*coordinates, np.array(task.parameters, np.float32))]
    (torch.zeros(16, device="cuda") + 1.0).sum().item()

    def literal(value: float) -> Any:
        return torch.full((), value, dtype=torch.float32, device="cuda")

    def make() -> Run:
        def distance(x: Any, y: Any, z: Any, p: Any) -> Any:
            return sdf.evaluate(task, (x, y, z), [p[i] for i in range(len(task.parameters))], safe, literal)

        argnums = (0, 1, 2) if wanted == "by_point" else 3
        gradient = torch.func.grad(lambda *arguments: distance(*arguments).sum(), argnums)
        compiled = torch.compile(distance if wanted == "value" else gradient)
        return lambda: compiled(*held)

    return make, lambda results: torch.cuda.synchronize()


# --- one contender ---------------------------------------------------------------------------------------------------


def on_host(results: Any) -> list[Any]:
    parts = results if isinstance(results, tuple | list) else [results]
    return [np.asarray(part.cpu() if hasattr(part, "cpu") else getattr(part, "on_host", part)) for part in parts]


def is_right(kind: str, results: Any, coordinates: Sequence[Any]) -> bool:
    parts = on_host(results)
    joined = (np.concatenate([np.ravel(part) for part in parts]),) if kind.endswith("by_parameter") else tuple(parts)
    problem = Problem(PREFIX + kind, coordinates[0].size)
    return agrees(problem, probe(joined), expected(problem, coordinates))


def measure(contender: str, kind: str, coordinates: Sequence[Any], samples: int, gate: Any) -> dict[str, Any]:
    """The seconds of the first call, of some later ones, and for livegrad of one from code on disk."""
    from_disk: Run | None = None
    if contender.startswith("livegrad"):
        make, wait, from_disk = livegrad_run(kind, coordinates, contender.endswith("ieee"))
    else:
        make, wait = (jax_run if contender == "jax" else torch_run)(kind, coordinates)
    start = time.perf_counter()
    run = make()
    results = run()
    wait(results)
    times: dict[str, Any] = {"first": time.perf_counter() - start, "samples": []}
    times["right"] = is_right(kind, results, coordinates)
    del results
    with gate:
        until = time.perf_counter() + WARM_UP
        while time.perf_counter() < until:
            _timed(run, wait)
        for _ in range(samples):
            times["samples"].append(_timed(run, wait))
        if from_disk is not None:
            times["from_disk"] = [_timed(from_disk, wait) for _ in range(3)]
    return times


def _timed(run: Run, wait: Wait) -> float:
    start = time.perf_counter()
    wait(run())
    return time.perf_counter() - start


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """One process at a time uses the device; others go on compiling."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def measure_here(contender: str, kind: str, folder: Path, samples: int) -> None:
    coordinates = [np.load(folder / f"{axis}.npy") for axis in "xyz"]
    try:
        times = measure(contender, kind, coordinates, samples, alone(folder / "device"))
    except Exception as error:  # a contender that fails is a line of the table
        times = {"reason": f"{type(error).__name__}: {str(error)[:200]}"}
    print(json.dumps(times), flush=True)


# --- the table -------------------------------------------------------------------------------------------------------


def measure_lane(pairs: Sequence[tuple[str, str]], folder: Path, samples: int) -> dict[tuple[str, str], dict[str, Any]]:
    """Contenders one after the other, each in a new process."""
    results: dict[tuple[str, str], dict[str, Any]] = {}
    for contender, kind in pairs:
        command = [sys.executable, "-m", "benchmarks.sdf_cuda", "--one", contender, kind, str(folder), str(samples)]
        environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        lines = done.stdout.strip().splitlines()
        reason = {"reason": done.stderr.strip()[-200:]}
        results[contender, kind] = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else reason
        print(f"{kind:<30}{contender:<16}{summary(results[contender, kind])}", flush=True)
    return results


def measure_all(count: int, samples: int, contenders: Sequence[str]) -> dict[tuple[str, str], dict[str, Any]]:
    """livegrad by itself; then the peers, whose compilers run side by side while the device serves one at a time."""
    folder = Path(tempfile.mkdtemp())
    for axis, array in zip("xyz", inputs(Problem(PREFIX + KINDS[0], count)), strict=True):
        np.save(folder / f"{axis}.npy", array)
    ours = [name for name in contenders if name.startswith("livegrad")]
    peers = [name for name in contenders if name not in ours]
    results: dict[tuple[str, str], dict[str, Any]] = {}
    for names in (ours, peers):
        lanes = [[(name, k) for k in KINDS if k.startswith(variant)] for name in names for variant in VARIANTS]
        with ThreadPoolExecutor(max(1, len(lanes))) as pool:
            for part in pool.map(lambda lane: measure_lane(lane, folder, samples), lanes):
                results |= part
    return results


def summary(times: dict[str, Any]) -> str:
    """Best time / first call / from code on disk."""
    if "reason" in times:
        return times["reason"][:60]
    disk = f" / {min(times['from_disk']) * 1e3:.1f} ms" if "from_disk" in times else ""
    wrong = "" if times["right"] else " WRONG"
    return f"{min(times['samples']) * 1e3:.3f} ms / {times['first']:.2f} s{disk}{wrong}"


def table(results: dict[tuple[str, str], dict[str, Any]], contenders: Sequence[str]) -> str:
    lines = ["best / first call / first call from code on disk", f"{'':<30}" + "".join(f"{n:>30}" for n in contenders)]
    for kind in KINDS:
        lines.append(f"{kind:<30}" + "".join(summary(results[name, kind]).rjust(30) for name in contenders))
    return "\n".join(lines)


# --- for the harness, which measures all in its own process ----------------------------------------------------------


def build(contender: str, problem: Problem) -> Run:
    kind = problem.kind.removeprefix(PREFIX)
    try:
        if contender.startswith("livegrad"):
            make, wait, _ = livegrad_run(kind, inputs(problem), contender.endswith("ieee"))
        else:
            make, wait = (jax_run if contender == "jax" else torch_run)(kind, inputs(problem))
    except ImportError as error:
        raise Unavailable(f"not installed: {error.name}") from None
    started = make()

    def run() -> Any:
        results = started()
        wait(results)
        parts = results if isinstance(results, tuple | list) else [results]
        return (Part(parts),) if kind.endswith("by_parameter") else tuple(Part([part]) for part in parts)

    return run


class Part:
    """Results on the device, which are copied to the host on demand."""

    def __init__(self, results: Sequence[Any]) -> None:
        self.results = results

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.concatenate([np.ravel(part) for part in on_host(self.results)]).astype(dtype, copy=False)


BUILDERS: dict[str, dict[str, Callable[[Problem], Run]]] = {
    name: {PREFIX + kind: partial(build, contender) for kind in KINDS}
    for name, contender in {
        "livegrad": "livegrad",
        "livegrad_ieee": "livegrad_ieee",
        "jax_gpu": "jax",
        "torch_gpu": "torch",
    }.items()
}


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        contender, kind, folder, samples = sys.argv[2:]
        measure_here(contender, kind, Path(folder), int(samples))
        return
    contenders = tuple(sys.argv[2:]) or CONTENDERS
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 26
    results = measure_all(count, SAMPLES, contenders)
    print(table(results, contenders))
    print(f"wrote benchmarks/results/{write_json(results, count).name}")


def write_json(results: dict[tuple[str, str], dict[str, Any]], count: int) -> Path:
    """Writes `results/<date>T<time>-engine-sdf.json`, with raw samples."""
    rows = {}
    for kind in KINDS:
        seconds = {PEERS.get(name, name): _times(times) for (name, k), times in results.items() if k == kind}
        title = f"{kind.replace('_', ' ')} of the distance function, {count:,} points on a GPU"
        rows[PREFIX + kind] = {
            "title": title, "size": count, "calls": 1, "work": count / 1e6, "unit": "Mpoints/s",
            "required": list(_required(kind, seconds)), "seconds": seconds,
        }  # fmt: skip
    command, title = "python -m benchmarks.sdf_cuda", "Distance functions on a GPU"
    return write_record("engine-sdf", describe({}), rows, command=command, title=title)


def _times(times: dict[str, Any]) -> dict[str, Any]:
    if "reason" in times:
        return {"reason": times["reason"]}
    if not times["right"]:
        return {"reason": "its result is wrong"}
    rest = {name: times[name] for name in ("first", "from_disk", "samples") if name in times}
    return {"best": min(times["samples"]), "median": float(np.median(times["samples"])), **rest}


def _required(kind: str, seconds: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Speed, the first result beside the peers' first, and the first from code on disk."""
    measured = {name: times for name, times in seconds.items() if "best" in times}
    mine, peers = measured.get("livegrad"), [times for name, times in measured.items() if name in PEERS.values()]
    speed, sooner, disk = (f"required: {told}" for told in REQUIRED)
    if mine is None or len(peers) < len(PEERS):
        yield from (f"{told}: not measured" for told in (speed, sooner, disk))
        return
    ratios = [min(times[name] for times in peers) / mine[name] for name in ("median", "first")]
    for told, ratio, least in zip((speed, sooner), ratios, (1.0, 3.0), strict=True):
        yield f"{told}: {'met' if ratio >= least else 'MISSED'} ({ratio:.2f} ×)"
    seconds_from_disk = min(mine["from_disk"])
    yield f"{disk}: {'met' if seconds_from_disk <= 0.02 else 'MISSED'} ({1e3 * seconds_from_disk:.3g} ms)"


if __name__ == "__main__":
    main()
