"""Outcomes as a table for people and as JSON with raw samples for the record."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import Benchmark, Outcome, Result
from benchmarks.problems import PRIMAL
from benchmarks.record import RESULTS, write_record
from benchmarks.requirements import SUITE_REQUIREMENTS, AtMost, MeanAtLeast, Requirement, requirements_of

OURS = ("livegrad", "livegrad_ieee", "handwritten", "memcpy", "adjoint")


def format_seconds(seconds: float) -> str:
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def best_peer(outcome: Outcome) -> str | None:
    medians = outcome.medians()
    peers = {name: seconds for name, seconds in medians.items() if name not in OURS and not name.endswith(PRIMAL)}
    return min(peers, key=lambda name: peers[name]) if peers else None


def contender_line(name: str, result: Result, benchmark: Benchmark, peer_seconds: float | None) -> str:
    if not result.samples:
        return f"  {name:<15} {result.reason}"
    rate = f"{benchmark.work / result.median:.4g} {benchmark.unit}" if benchmark.unit else ""
    ratio = f"{peer_seconds / result.median:.2f}" if peer_seconds else ""
    times = f"{format_seconds(result.best):>10} {format_seconds(result.median):>10} {len(result.samples):>4}"
    return f"  {name:<15} {times}  {rate:>17} {ratio:>8}".rstrip()


def requirement_line(requirement: Requirement, outcome: Outcome) -> str:
    verdict = requirement.judge(outcome.medians())
    if verdict is None:
        return f"  required: {requirement}: not measured"
    value, met = verdict
    shown = format_seconds(value) if isinstance(requirement, AtMost) else f"{value:.2f} ×"
    return f"  required: {requirement}: {'met' if met else 'MISSED'} ({shown})"


def ratio_lines(outcome: Outcome) -> list[str]:
    """The time of each contender's derivative, relative to its own function."""
    medians = outcome.medians()
    ratios = {name: medians[name] / medians[name + PRIMAL] for name in medians if name + PRIMAL in medians}
    return [f"  derivative / function: {', '.join(f'{n} {r:.2f}' for n, r in ratios.items())}"] if ratios else []


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
            verdict = requirement.judge(outcome.medians())
            if outcome.benchmark.skip is None and (verdict is None or not verdict[1]):
                problems.append(f"{outcome.benchmark.name}: {requirement_line(requirement, outcome).strip()}")
    return problems


def worst_ratios(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """For each program, its speed over the fastest peer's at the size where that is lowest; zero if not measured."""
    worst: dict[str, float] = {}
    for outcome in outcomes:
        program, _, _ = outcome.benchmark.name.rpartition("_")
        peer, medians = best_peer(outcome), outcome.medians()
        ratio = medians[peer] / medians["livegrad"] if peer and "livegrad" in medians else 0.0
        worst[program] = min(ratio, worst.get(program, ratio))
    return worst


def suite_lines(suite: str, outcomes: Sequence[Outcome]) -> list[str]:
    """The requirements of a whole suite, of which all rows were measured."""
    ratios = worst_ratios(outcomes)
    lines = []
    for requirement in SUITE_REQUIREMENTS[suite]:
        value, met = requirement.judge(ratios)
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
    return record | {"samples": [significant(sample) for sample in result.samples]}


def outcome_record(outcome: Outcome) -> dict[str, Any]:
    benchmark = outcome.benchmark
    record: dict[str, Any] = {"title": benchmark.title, "size": benchmark.problem.size, "calls": benchmark.calls}
    if benchmark.unit:
        record |= {"work": significant(benchmark.work), "unit": benchmark.unit}
    required = [requirement_line(r, outcome).strip() for r in requirements_of(benchmark.name)]
    seconds = {name: result_record(result) for name, result in outcome.results.items()}
    return record | {"required": required, "seconds": seconds}


def write_json(suite: str, outcomes: Sequence[Outcome], machine: dict[str, Any], **more: Any) -> Path:
    """Writes `results/<date>T<time>-<suite>.json`."""
    rows = {outcome.benchmark.name: outcome_record(outcome) for outcome in outcomes}
    return write_record(suite, machine, rows, RESULTS, **more)
