"""`python -m benchmarks [names] [--quick] [--json] [--check] [--page]`, started by `./bench`."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from benchmarks import (
    context,
    eager,
    engine,
    foundation,
    gradients,
    hosts,
    machine,
    page,
    parts,
    passes,
    report,
    revisions,
    studio,
    tensors,
)
from benchmarks.harness import Benchmark, Effort, Outcome, limit_threads
from benchmarks.loops import gradient_rows as loops_gradients
from benchmarks.loops import rows as loops
from benchmarks.processes import measure_in_processes, measure_rows
from benchmarks.record import RESULTS, RecordFile
from benchmarks.requirements import SUITE_REQUIREMENTS
from benchmarks.tensors_gpu import measure as gpu
from benchmarks.tensors_gpu import rows as tensors_gpu
from benchmarks.tensors_gpu.catalogue import ROWS, TEST_ROWS
from livegrad.runtime.cuda import reason_for_no_cuda

SUITES = {
    "context": context.rows,
    "eager": eager.rows,
    "engine": engine.rows,
    "engine-gpu": engine.gpu_rows,
    "foundation": foundation.rows,
    "gradients": gradients.rows,
    "hosts": hosts.rows,
    "implicit": parts.rows,
    "loops": loops.rows,
    "loops-gradients": loops_gradients.rows,
    "passes": passes.rows,
    "tensors": tensors.rows,
    "tensors-gpu": tensors_gpu.rows,
}
TITLES = {"tensors-gpu": "Tensors on a GPU"}  # on the page


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./bench", description="livegrad and its peers, measured in one run")
    parser.add_argument("names", nargs="*", help=f"suites or rows; suites: {', '.join(SUITES)} (default: all), studio")
    parser.add_argument("--rows", help="of those, only the rows with such names: gpu_gpt2_*,*_full")
    parser.add_argument("--quick", action="store_true", help="small problems and few samples, to see that it works")
    parser.add_argument("--json", action="store_true", help="keep the results with raw samples in benchmarks/results")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder to keep them in instead")
    parser.add_argument("--check", action="store_true", help="fail when a requirement is missed or not measured")
    parser.add_argument("--page", action="store_true", help="write docs/benchmarks.md from what is kept, and stop")
    parser.add_argument("--list", action="store_true", help="name the rows and stop")
    parser.add_argument("--against", metavar="REVISION", help="measure livegrad alone, beside another revision of it")
    parser.add_argument("--seconds", type=float, help="for the samples of each row and contender")
    defaults = gpu.Options()
    more = parser.add_argument_group("tensors-gpu")
    more.add_argument(
        "--contenders", default=",".join(defaults.contenders), help="also torch_graphs (default: %(default)s)"
    )
    more.add_argument("--device", default=defaults.device, choices=("cuda", "cpu"), help="cpu: to see that it works")
    more.add_argument("--lanes", type=int, default=gpu.lanes_here(), help="rows loaded side by side (here %(default)s)")
    more.add_argument("--patience", type=float, default=defaults.patience, help="seconds for a first result")
    more.add_argument("--slowest", type=float, default=defaults.slowest, help="seconds of a call that is not repeated")
    more.add_argument("--limit", type=float, default=defaults.limit, help="seconds after which no row is started")
    return parser.parse_args(arguments)


def choose(names: list[str], quick: bool, patterns: str | None = None) -> list[Benchmark]:
    suites = {suite: rows(quick) for suite, rows in SUITES.items()}
    every = list({row.name: row for rows in suites.values() for row in rows}.values())  # some are in two suites
    available = set(suites) | {row.name for row in every}
    if unknown := [name for name in names if name not in available]:
        sys.exit(f"no benchmark is called {', '.join(unknown)}; there are: {', '.join(sorted(available))}")
    wanted = {row.name for name in names for row in suites.get(name, ())} | set(names)
    chosen = [row for row in every if not names or row.name in wanted]
    if patterns is None:
        return chosen
    chosen = [row for row in chosen if any(fnmatch(row.name, pattern) for pattern in patterns.split(","))]
    return chosen or sys.exit(f"no row is called {patterns}")


def suites_of(names: list[str]) -> list[str]:
    """The suites that these are, or have rows of."""
    first = {row.name: suite for suite, rows in reversed(SUITES.items()) for row in rows(False)}
    return list(dict.fromkeys(name if name in SUITES else first[name] for name in names))


def measure_all(benchmarks: list[Benchmark], effort: Effort) -> tuple[list[Outcome], dict[str, str]]:
    """Measures the rows, prints each outcome as soon as it is available, and returns them with the peers' versions."""
    once = [row for row in benchmarks if row.processes == 1]
    often = [row for row in benchmarks if row.processes > 1]
    outcomes, versions = measure_rows(once, effort, tell=report.table)
    more, more_versions = measure_in_processes(often, effort) if often else ([], {})
    for outcome in more:
        print(report.table(outcome))
    return outcomes + more, versions | more_versions


def gpu_options(arguments: argparse.Namespace) -> gpu.Options:
    effort = Effort(3 if arguments.quick else gpu.EFFORT.rounds, arguments.seconds or gpu.EFFORT.seconds)
    return gpu.Options(
        arguments.device, tuple(arguments.contenders.split(",")), effort, arguments.lanes, arguments.slowest,
        arguments.patience, arguments.limit,
    )  # fmt: skip


def cpu_effort(arguments: argparse.Namespace) -> Effort:
    effort = Effort(rounds=3, seconds=1.0) if arguments.quick else Effort(rounds=20, seconds=5.0)
    return Effort(effort.rounds, arguments.seconds or effort.seconds)


def judge_suites(outcomes: list[Outcome]) -> list[str]:
    """The requirements of the suites whose rows were all measured."""
    by_name = {outcome.benchmark.name: outcome for outcome in outcomes}
    lines: list[str] = []
    for suite in SUITE_REQUIREMENTS:
        names = [row.name for row in SUITES[suite](False)]
        if all(name in by_name for name in names):
            lines += report.suite_lines(suite, [by_name[name] for name in names])
    return lines


class Keeper:
    """Collects outcomes, and keeps them in a file if that is wanted."""

    def __init__(self, suite: str, folder: Path | None) -> None:
        self.suite = suite
        self.file = None if folder is None else RecordFile(suite, folder)
        self.outcomes: list[Outcome] = []
        self.versions: dict[str, str] = {}
        self.threads = 2  # that `limit_threads` leaves to rows on the CPU

    def add(self, outcomes: Sequence[Outcome], versions: Mapping[str, str]) -> None:
        self.outcomes += outcomes
        self.versions |= versions
        self.write()

    def tell(self, outcome: Outcome, versions: Mapping[str, str]) -> None:
        print(report.table(outcome), flush=True)
        self.add([outcome], versions)

    def write(self, **more: Any) -> None:
        if self.file is not None:
            title = {"title": TITLES[self.suite]} if self.suite in TITLES else {}
            rows = report.rows_record(self.outcomes)
            self.file.write(machine.describe(self.versions, self.threads), rows, **title, **more)


def measure_and_keep(benchmarks: list[Benchmark], arguments: argparse.Namespace, keeper: Keeper) -> None:
    """Rows on a GPU first, because compilers there use all processors; the others have two."""
    skipped = reason_for_no_cuda() if arguments.device == "cuda" else None
    on_gpu = [row for row in benchmarks if row.name in ROWS or row.name in TEST_ROWS]
    if on_gpu and not skipped:
        keeper.threads = os.cpu_count() or 1
        gpu.measure_rows(on_gpu, gpu_options(arguments), keeper.tell)
    else:
        for outcome in gpu.unmeasured(on_gpu, f"skipped: {skipped}"):
            keeper.tell(outcome, {})
    if others := [row for row in benchmarks if row not in on_gpu]:
        keeper.threads = 2
        limit_threads()
        keeper.add(*measure_all(others, cpu_effort(arguments)))


def notes_of(suite: str, notes: list[str]) -> dict[str, Any]:
    """The additional record of a suite."""
    more = engine.gpu_notes() if suite == "engine-gpu" and reason_for_no_cuda() is None else {}
    return more | ({"notes": notes} if notes else {})


def main() -> int:
    arguments = parse_arguments()
    if arguments.page:
        print(f"wrote docs/{page.write().name}")
        return 0
    if arguments.names == ["studio"]:  # in a browser, and without peers
        rows = [] if arguments.rows is None else arguments.rows.split(",")
        keep = arguments.json
        return studio.main(
            quick=arguments.quick, keep=keep, check=arguments.check, names=rows, results=arguments.results
        )
    benchmarks = choose(arguments.names, arguments.quick, arguments.rows)
    if arguments.list:
        print("\n".join(f"{row.name:<20} {row.title}" for row in benchmarks))
        return 0
    if arguments.against:
        limit_threads()
        return revisions.run(arguments.against, benchmarks, cpu_effort(arguments), arguments.json)
    suite = "+".join(suites_of(arguments.names or list(SUITES)))
    keeper = Keeper(suite, arguments.results if arguments.json else None)
    measure_and_keep(benchmarks, arguments, keeper)
    notes = judge_suites(keeper.outcomes)
    print("\n".join(notes))
    keeper.write(**notes_of(suite, notes))
    if keeper.file is not None:
        print(f"wrote {keeper.file.path.parent.name}/{keeper.file.path.name}")
    if arguments.check and (missed := report.missed(keeper.outcomes) + [note for note in notes if "MISSED" in note]):
        print("\n".join(missed))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
