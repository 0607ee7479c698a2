"""The rows of the context suite: precise caching on a 2,000-node document, the cost of a hit, and of the analysis.

Every frame's value and number of computed nodes must equal those of an independent oracle, or there is no result.
"""

from benchmarks.context_document import FAN, FRAMES, document
from benchmarks.harness import Benchmark
from benchmarks.problems import Problem

HITS = 10_000


def rows(quick: bool) -> list[Benchmark]:
    shapes = 10 if quick else 106
    nodes = len(document(shapes))
    rungs = 1_000 if quick else 10_000
    return [
        Benchmark(
            "context_frames",
            f"{nodes:,} nodes, {FRAMES['context_frames']} changes of animation_time, from an empty cache",
            Problem("context_frames", shapes),
            ("livegrad",),
            work=FRAMES["context_frames"],
            unit="frames/s",
        ),
        Benchmark(
            "context_whole",
            f"the first {FRAMES['context_whole']} of them, beside the same document without nullification",
            Problem("context_whole", shapes),
            ("livegrad", "whole context"),
            work=FRAMES["context_whole"],
            unit="frames/s",
        ),
        Benchmark(
            "context_hit",
            f"a result that is in the cache, {HITS:,} times",
            Problem("context_hit", HITS),
            ("livegrad", "functools"),
            work=HITS / 1e6,
            unit="Mhits/s",
        ),
        Benchmark(
            "context_fan",
            f"a node computed over {FAN:,} inputs that are in the cache",
            Problem("context_fan", FAN),
            ("livegrad", "functools"),
            work=FAN / 1e6,
            unit="Mhits/s",
        ),
        Benchmark(
            "context_compile",
            f"nullify_context on {nodes:,} nodes beside their whole compilation",
            Problem("context_compile", shapes),
            ("livegrad", "whole compile"),
            calls=5,  # during compilation the nodes are in the processor's cache, because earlier passes touched them
        ),
        Benchmark(
            "context_ladder",
            f"compiling a ladder of {rungs:,} levels, each used twice by the next",
            Problem("context_ladder", rungs),
            ("livegrad",),
        ),
    ]
