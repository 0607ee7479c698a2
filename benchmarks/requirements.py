"""The performance requirements: speed ratios against contenders of the same run, and latencies.

A requirement of a row is judged by the row's times, one of a suite by all of its programs, each at its worst size.

Both are judged by medians of interleaved samples. A `measure` names what is judged, as in `Outcome.samples`.

`./bench --check` fails when one is missed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.loops.catalogue import PROGRAMS as LOOPS
from benchmarks.tensors_gpu.catalogue import ROWS as TENSORS_GPU

COMPILERS = ("jax", "torch", "numba")
DIFFERENTIATORS = ("jax", "torch")
RESAMPLES = 1000  # of the samples, for an interval


@dataclass(frozen=True)
class AtLeast:
    """livegrad's speed, as a multiple of the fastest of `against`."""

    benchmark: str
    ratio: float
    against: tuple[str, ...]

    def __str__(self) -> str:
        names = " or ".join((", ".join(self.against[:-1]), self.against[-1])) if self.against[1:] else self.against[0]
        return f"at least {self.ratio:g} × the speed of {names}"

    def judge(self, medians: Mapping[str, float]) -> tuple[float, bool] | None:
        """The ratio found and whether it is enough, or None when a contender is missing."""
        if not {"livegrad", *self.against} <= medians.keys():
            return None
        ratio = min(medians[name] for name in self.against) / medians["livegrad"]
        return ratio, ratio >= self.ratio


@dataclass(frozen=True)
class AtMost:
    """livegrad's median time, in seconds."""

    benchmark: str
    seconds: float

    def __str__(self) -> str:
        return f"at most {self.seconds * 1e3:g} ms"

    def judge(self, medians: Mapping[str, float]) -> tuple[float, bool] | None:
        if "livegrad" not in medians:
            return None
        return medians["livegrad"], medians["livegrad"] <= self.seconds


@dataclass(frozen=True)
class RatioAtMost:
    """livegrad's median time or peak of memory, as a multiple of another contender's in the same row."""

    benchmark: str
    ratio: float
    of: str
    measure: str = "median"

    def __str__(self) -> str:
        return f"at most {self.ratio:g} × the {'memory' if self.measure == 'peak' else 'time'} of {self.of}"

    def judge(self, medians: Mapping[str, float]) -> tuple[float, bool] | None:
        if not {"livegrad", self.of} <= medians.keys():
            return None
        ratio = medians["livegrad"] / medians[self.of]
        return ratio, ratio <= self.ratio


def ratio_interval(samples: Sequence[float], own: Sequence[float]) -> tuple[float, float]:
    """The interval that has 95% of the ratios of medians, if samples are drawn again from those there are."""
    generator = np.random.default_rng(0)
    peers, ours = (
        np.median(generator.choice(np.asarray(values), (RESAMPLES, len(values))), axis=1) for values in (samples, own)
    )
    low, high = np.quantile(peers / ours, (0.025, 0.975))
    return float(low), float(high)


@dataclass(frozen=True)
class BestPeer:
    """livegrad's speed, as a multiple of the fastest of the peers that have a result.

    With `up_to_noise`, it suffices that the interval of the ratio reaches the requirement."""

    benchmark: str
    ratio: float
    measure: str = "median"
    up_to_noise: bool = False

    def __str__(self) -> str:
        of = {
            "median": "at least {:g} × the speed of the best peer",
            "queued": "back to back at least {:g} × the speed of the best peer",
            "first": "first result at least {:g} × sooner than the best peer's",
        }[self.measure]
        return of.format(self.ratio) + (", up to noise" if self.up_to_noise else "")

    def judge(self, samples: Mapping[str, Sequence[float]]) -> tuple[float, bool] | None:
        peers = [values for name, values in samples.items() if name != "livegrad"]
        if "livegrad" not in samples or not peers:
            return None
        best, own = min(peers, key=lambda values: float(np.median(values))), samples["livegrad"]
        ratio = float(np.median(best) / np.median(own))
        reached = ratio_interval(best, own)[1] if self.up_to_noise else ratio
        return ratio, reached >= self.ratio


@dataclass(frozen=True)
class ShareAtLeast:
    """The share of a suite's programs that are at least `ratio` times as fast as the fastest peer."""

    share: float
    ratio: float
    measure: str = "median"

    def __str__(self) -> str:
        return f"at least {self.share:.0%} of the programs at {self.ratio:g} × the fastest peer or above"

    def judge(self, ratios: Mapping[str, float]) -> tuple[float, bool]:
        share = sum(ratio >= self.ratio for ratio in ratios.values()) / len(ratios)
        return share, share >= self.share


@dataclass(frozen=True)
class DerivativesWithin:
    """The share of rows whose derivatives, in both modes, take at most a multiple of the function's time on
    processors."""

    share: float
    ratio: float
    measure: str = "processor"

    def __str__(self) -> str:
        return f"derivatives within {self.ratio:g} × the function for {self.share:.0%} of the rows, time on processors"

    def judge(self, ratios: Mapping[str, float]) -> tuple[float, bool]:
        share = sum(ratio <= self.ratio for ratio in ratios.values()) / len(ratios)
        return share, share >= self.share


@dataclass(frozen=True)
class MeanAtLeast:
    """The geometric mean of how fast a suite's programs are, as multiples of the fastest peer."""

    ratio: float
    measure: str = "median"

    def __str__(self) -> str:
        rule = f"a geometric mean of at least {self.ratio:g} × the fastest peer"
        return rule + (", back to back" if self.measure == "queued" else "")

    def judge(self, ratios: Mapping[str, float]) -> tuple[float, bool]:
        mean = math.prod(ratio ** (1.0 / len(ratios)) for ratio in ratios.values())  # zero where one is not measured
        return mean, mean >= self.ratio


Requirement = AtLeast | AtMost | RatioAtMost | BestPeer
SuiteRequirement = ShareAtLeast | DerivativesWithin | MeanAtLeast

TENSOR_ROWS = (
    "chain", "reductions", "softmax_tensors", "layer_norm", "attention", "attention_gradient", "training_step_32",
    "training_step",
)  # fmt: skip

SDF_CUDA_ROWS = tuple(
    f"{variant}_{wanted}"
    for variant in ("algebraic", "transcendental")
    for wanted in ("value", "by_point", "by_parameter")
)

REQUIREMENTS: tuple[Requirement, ...] = (
    *[AtLeast(name, 1.0, (*DIFFERENTIATORS, "torch_eager")) for name in TENSOR_ROWS],
    *[AtLeast(f"first_{name}", 10.0, DIFFERENTIATORS) for name in ("chain", "attention_gradient", "training_step")],
    AtMost("build", 0.1),  # ten thousand additions
    AtMost("small_call", 20e-6),
    AtMost("eager_node", 1.5e-6),
    AtMost("eager_element", 2e-6),
    AtMost("eager_array", 10e-6),
    AtMost("eager_sum", 10e-6),
    AtMost("eager_scalars", 3e-6),
    *[AtLeast(name, 0.1, ("numpy",)) for name in ("eager_loop", "eager_chain", "eager_newton")],
    AtLeast("sdf_algebraic", 1.6, COMPILERS),
    AtLeast("sdf_algebraic", 0.9, ("handwritten",)),
    AtLeast("sdf_transcendental", 2.5, COMPILERS),
    AtLeast("sdf_transcendental", 0.9, ("handwritten",)),
    AtLeast("softmax", 2.0, (*COMPILERS, "numpy")),
    AtLeast("sum_of_squares", 1.0, (*COMPILERS, "numpy")),
    AtMost("first_call_310", 0.100),
    AtMost("first_call_3000", 1.0),
    AtMost("prospero", 1.5),
    AtMost("warm_cache", 0.005),
    AtMost("call_overhead", 5e-6),
    *[AtLeast(f"sdf_cuda_{name}", 1.0, ("jax_gpu", "torch_gpu")) for name in SDF_CUDA_ROWS],
    AtMost("engine_cuda_hot", 15e-6),  # of a thousand kernels; the driver's floor is 4 µs
    AtMost("engine_cuda_hot_all", 15e-6),
    AtMost("engine_cuda_code", 100e-6),
    AtMost("engine_cuda_cold", 0.05),
    AtMost("engine_cpu_hot", 100e-6),  # of a thousand blocks, and nothing else stale
    AtMost("engine_cpu_cold_add", 0.005),  # of five thousand blocks
    AtLeast("context_hit", 0.2, ("functools",)),  # a hit costs at most five of theirs
    AtLeast("context_fan", 0.2, ("functools",)),
    AtLeast("context_compile", 20.0, ("whole compile",)),  # the pass takes at most 5%
    AtMost("context_ladder", 1.0),
    AtLeast("context_whole", 3.0, ("whole context",)),
    AtLeast("prospero_drawn_4096", 10.0, ("plain",)),  # what pruning is worth
    AtMost("nested_calls", 2.0),  # 97 s with every call written out
    AtMost("bounds_of_sines", 40.0),  # LLVM alone took longer for all of it in one piece
    AtMost("thin_part", 20.0),
    AtMost("prospero_rendered", 10.0),
    AtLeast("gmm", 1.0, ("jax",)),
    RatioAtMost("gmm", 1.3, "adjoint"),
    AtLeast("gradient_algebraic", 3.0, DIFFERENTIATORS),
    RatioAtMost("gradient_algebraic", 4.0, "livegrad:primal"),
    AtLeast("gradient_transcendental", 3.0, DIFFERENTIATORS),
    RatioAtMost("gradient_transcendental", 4.0, "livegrad:primal"),
    AtMost("first_gradient_algebraic", 0.5),
    AtMost("first_gradient_transcendental", 0.5),
    *[AtLeast(row, 0.5, program.peers) for program in LOOPS.values() for row in program.row_names()],
    *[
        BestPeer(row, 1.0, measure, up_to_noise=program.one_library)
        for row, program in TENSORS_GPU.items()
        for measure in ("median", "queued")
    ],
    *[BestPeer(row, 3.0, "first") for row in TENSORS_GPU],
    *[RatioAtMost(row, 1.2, "torch", "peak") for row in TENSORS_GPU if row.startswith("gpu_gpt2")],
)
SUITE_REQUIREMENTS: dict[str, tuple[SuiteRequirement, ...]] = {
    "loops": (ShareAtLeast(0.8, 1.0), MeanAtLeast(1.5)),
    "loops-gradients": (DerivativesWithin(0.8, 5.0),),
    "tensors-gpu": (MeanAtLeast(1.3), MeanAtLeast(1.3, "queued")),
}


def requirements_of(benchmark: str) -> list[Requirement]:
    return [requirement for requirement in REQUIREMENTS if requirement.benchmark == benchmark]
