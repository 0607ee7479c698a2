"""Outcomes as a table for people and as JSON with raw samples for the record."""

import statistics
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

from benchmarks.harness import Benchmark, Outcome, Result
from benchmarks.problems import PRIMAL
from benchmarks.record import RESULTS, write_record
from benchmarks.requirements import (
    SUITE_REQUIREMENTS,
    AtMost,
    BestPeer,
    DerivativesWithin,
    MeanAtLeast,
    RatioAtMost,
    Requirement,
    ratio_interval,
    requirements_of,
)

OURS = ("livegrad", "livegrad_forward", "livegrad_ieee", "handwritten", "memcpy", "adjoint")


def format_seconds(seconds: float) -> str:
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def best_peer(outcome: Outcome, measure: str = "median") -> str | None:
    figures = outcome.figures(measure)
    peers = {name: seconds for name, seconds in figures.items() if name not in OURS and not name.endswith(PRIMAL)}
    return min(peers, key=lambda name: peers[name]) if peers else None


def ratio_to_best_peer(outcome: Outcome, measure: str = "median") -> float | None:
    """livegrad's speed over that of the fastest peer; None if one of them is missing."""
    peer, figures = best_peer(outcome, measure), outcome.figures(measure)
    return figures[peer] / figures["livegrad"] if peer and "livegrad" in figures else None


def contender_line(name: str, result: Result, benchmark: Benchmark, peer_seconds: float | None) -> str:
    if not result.samples:
        return f"  {name:<15} {result.reason}"
    rate = f"{benchmark.work / result.median:.4g} {benchmark.unit}" if benchmark.unit else ""
    ratio = f"{peer_seconds / result.median:.2f}" if peer_seconds else ""
    times = f"{format_seconds(result.best):>10} {format_seconds(result.median):>10} {len(result.samples):>4}"
    if benchmark.processor and result.processor:
        rate = f"CPU {format_seconds(statistics.median(result.processor))}"
    return f"  {name:<15} {times}  {rate:>17} {ratio:>8}{more_figures(result)}".rstrip()


def more_figures(result: Result) -> str:
    """What only programs on a GPU have, and rows that count memory."""
    parts = [f"{format_seconds(statistics.median(result.queued))} back to back"] if result.queued else []
    if result.peak_bytes is not None:
        megabytes = result.peak_bytes / 1e6
        parts.append(f"{megabytes:,.0f} MB" if megabytes >= 10.0 else f"{megabytes:.2g} MB")
    if parts and result.first_seconds is not None:
        parts.insert(0, f"first {format_seconds(result.first_seconds)}")
    return "   " + ", ".join([*parts, *([result.note] if result.note else [])])


def verdict_of(requirement: Requirement, outcome: Outcome) -> tuple[float, bool] | None:
    """The figure found and whether it is enough; None if it was not measured."""
    if isinstance(requirement, BestPeer):
        return requirement.judge(outcome.samples(requirement.measure))
    measure = requirement.measure if isinstance(requirement, RatioAtMost) else "median"
    return requirement.judge(outcome.figures(measure))


def requirement_line(requirement: Requirement, outcome: Outcome) -> str:
    verdict = verdict_of(requirement, outcome)
    if verdict is None:
        return f"  required: {requirement}: not measured"
    value, met = verdict
    shown = format_seconds(value) if isinstance(requirement, AtMost) else f"{value:.2f} ×"
    return f"  required: {requirement}: {'met' if met else 'MISSED'} ({shown})"


def ratio_lines(outcome: Outcome) -> list[str]:
    """The time of each contender's derivative, relative to its own function; for some rows also that on processors."""
    measures = {"": "median"} | ({", time on processors": "processor"} if outcome.benchmark.processor else {})
    lines = []
    for title, measure in measures.items():
        ratios = derivative_ratios(outcome, measure)
        if ratios:
            lines.append(f"  derivative / function{title}: {', '.join(f'{n} {r:.2f}' for n, r in ratios.items())}")
    return lines


def derivative_ratios(outcome: Outcome, measure: str) -> dict[str, float]:
    """For each contender with a derivative, its time relative to the contender's function; `livegrad_forward` has that
    of livegrad."""
    times = outcome.figures(measure)
    functions = {name: name.removesuffix("_forward") + PRIMAL for name in times if not name.endswith(PRIMAL)}
    return {name: times[name] / times[function] for name, function in functions.items() if function in times}


def worst_derivatives(outcomes: Sequence[Outcome], measure: str) -> dict[str, float]:
    """For each row, the larger of livegrad's ratios in both modes; infinite if one was not measured."""
    worst: dict[str, float] = {}
    for outcome in outcomes:
        ratios = derivative_ratios(outcome, measure)
        worst[outcome.benchmark.name] = max(ratios.get(name, inf) for name in ("livegrad", "livegrad_forward"))
    return worst


def table(outcome: Outcome) -> str:
    peer = best_peer(outcome)
    peer_seconds = outcome.medians()[peer] if peer else None
    heading = f"  {'':<15} {'best':>10} {'median':>10} {'runs':>4}  {'rate':>17} {f'× {peer}' if peer else '':>8}"
    lines = [f"{outcome.benchmark.name}: {outcome.benchmark.title}", heading.rstrip()]
    for name, result in outcome.results.items():
        lines.append(contender_line(name, result, outcome.benchmark, peer_seconds))
    lines += ratio_lines(outcome)
    lines += [requirement_line(requirement, outcome) for requirement in requirements_of(outcome.benchmark.name)]
    return "\n".join(lines) + "\n"


def missed(outcomes: Sequence[Outcome]) -> list[str]:
    """The requirements that are missed, including those that could not be measured."""
    problems: list[str] = []
    for outcome in outcomes:
        for requirement in requirements_of(outcome.benchmark.name):
            verdict = verdict_of(requirement, outcome)
            if outcome.benchmark.skip is None and (verdict is None or not verdict[1]):
                problems.append(f"{outcome.benchmark.name}: {requirement_line(requirement, outcome).strip()}")
    return problems


def worst_ratios(outcomes: Sequence[Outcome], measure: str = "median") -> dict[str, float]:
    """For each program, its speed over the fastest peer's at the size where that is lowest; zero if not measured."""
    worst: dict[str, float] = {}
    for outcome in outcomes:
        program, _, _ = outcome.benchmark.name.rpartition("_")
        ratio = ratio_to_best_peer(outcome, measure) or 0.0
        worst[program] = min(ratio, worst.get(program, ratio))
    return worst


def suite_lines(suite: str, outcomes: Sequence[Outcome]) -> list[str]:
    """The requirements of a whole suite, of which all rows were measured."""
    lines = []
    for requirement in SUITE_REQUIREMENTS[suite]:
        ratios = worst_derivatives if isinstance(requirement, DerivativesWithin) else worst_ratios
        value, met = requirement.judge(ratios(outcomes, requirement.measure))
        shown = f"{value:.2f} ×" if isinstance(requirement, MeanAtLeast) else f"{value:.0%}"
        lines.append(f"{suite}, required: {requirement}: {'met' if met else 'MISSED'} ({shown})")
    return lines


def significant(value: float) -> float:
    return float(f"{value:.6g}")


def result_record(result: Result) -> dict[str, Any]:
    if not result.samples:
        return {"reason": result.reason}
    record: dict[str, Any] = {"best": significant(result.best), "median": significant(result.median)}
    if result.first_seconds is not None:
        record["first"] = significant(result.first_seconds)
    if result.processor:
        record["processor"] = significant(statistics.median(result.processor))
    if result.queued:
        samples = [significant(sample) for sample in result.queued]
        median = significant(statistics.median(samples))
        record["queued"] = {"median": median, "calls": result.queued_calls, "samples": samples}
    if result.peak_bytes is not None:
        record["peak_bytes"] = result.peak_bytes
    if result.note is not None:
        record["note"] = result.note
    return record | {"samples": [significant(sample) for sample in result.samples]}


def outcome_record(outcome: Outcome) -> dict[str, Any]:
    benchmark = outcome.benchmark
    record: dict[str, Any] = {"title": benchmark.title, "size": benchmark.problem.size, "calls": benchmark.calls}
    if benchmark.unit:
        record |= {"work": significant(benchmark.work), "unit": benchmark.unit}
    required = [requirement_line(r, outcome).strip() for r in requirements_of(benchmark.name)]
    seconds = {name: result_record(result) for name, result in outcome.results.items()}
    return record | {"required": required, **intervals_record(outcome), "seconds": seconds}


def intervals_record(outcome: Outcome) -> dict[str, Any]:
    """The intervals of the ratios to the best peer, for rows that have calls back to back."""
    intervals: dict[str, list[float]] = {}
    for measure in ("median", "queued"):
        peer, samples = best_peer(outcome, measure), outcome.samples(measure)
        if peer and "livegrad" in samples and outcome.samples("queued"):
            intervals[measure] = [significant(end) for end in ratio_interval(samples[peer], samples["livegrad"])]
    return {"intervals": intervals} if intervals else {}


def rows_record(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {outcome.benchmark.name: outcome_record(outcome) for outcome in outcomes}


def write_json(suite: str, outcomes: Sequence[Outcome], machine: dict[str, Any], **more: Any) -> Path:
    """Writes `results/<date>T<time>-<suite>.json`."""
    return write_record(suite, machine, rows_record(outcomes), RESULTS, **more)
