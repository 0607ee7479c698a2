"""`python -m benchmarks [names] [--quick] [--json] [--check] [--page]`, started by `./bench`."""

import argparse
import sys

from benchmarks import context, eager, engine, foundation, gradients, machine, page, parts, passes, report, tensors
from benchmarks.harness import Benchmark, Effort, Outcome, limit_threads
from benchmarks.loops import rows as loops
from benchmarks.processes import measure_in_processes, measure_rows
from benchmarks.requirements import SUITE_REQUIREMENTS
from livegrad.runtime.cuda import reason_for_no_cuda

SUITES = {
    "context": context.rows,
    "eager": eager.rows,
    "engine": engine.rows,
    "engine-gpu": engine.gpu_rows,
    "foundation": foundation.rows,
    "gradients": gradients.rows,
    "implicit": parts.rows,
    "loops": loops.rows,
    "passes": passes.rows,
    "tensors": tensors.rows,
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./bench", description="livegrad and its peers, measured in one run")
    parser.add_argument("names", nargs="*", help=f"suites or rows; suites: {', '.join(SUITES)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="small problems and few samples, to see that it works")
    parser.add_argument("--json", action="store_true", help="keep the results with raw samples in benchmarks/results")
    parser.add_argument("--check", action="store_true", help="fail when a requirement is missed or not measured")
    parser.add_argument("--page", action="store_true", help="write docs/benchmarks.md from what is kept, and stop")
    parser.add_argument("--list", action="store_true", help="name the rows and stop")
    return parser.parse_args()


def choose(names: list[str], quick: bool) -> list[Benchmark]:
    suites = {suite: rows(quick) for suite, rows in SUITES.items()}
    every = list({row.name: row for rows in suites.values() for row in rows}.values())  # some are in two suites
    available = set(suites) | {row.name for row in every}
    if unknown := [name for name in names if name not in available]:
        sys.exit(f"no benchmark is called {', '.join(unknown)}; there are: {', '.join(sorted(available))}")
    wanted = {row.name for name in names for row in suites.get(name, ())} | set(names)
    return [row for row in every if not names or row.name in wanted]


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


def judge_suites(outcomes: list[Outcome]) -> list[str]:
    """The requirements of the suites whose rows were all measured."""
    by_name = {outcome.benchmark.name: outcome for outcome in outcomes}
    lines: list[str] = []
    for suite in SUITE_REQUIREMENTS:
        names = [row.name for row in SUITES[suite](False)]
        if all(name in by_name for name in names):
            lines += report.suite_lines(suite, [by_name[name] for name in names])
    return lines


def main() -> int:
    arguments = parse_arguments()
    if arguments.page:
        print(f"wrote docs/{page.write().name}")
        return 0
    benchmarks = choose(arguments.names, arguments.quick)
    if arguments.list:
        print("\n".join(f"{row.name:<20} {row.title}" for row in benchmarks))
        return 0
    limit_threads()
    effort = Effort(rounds=3, seconds=1.0) if arguments.quick else Effort(rounds=20, seconds=5.0)
    outcomes, versions = measure_all(benchmarks, effort)
    notes = judge_suites(outcomes)
    print("\n".join(notes))
    if arguments.json:
        suite = "+".join(suites_of(arguments.names or list(SUITES)))
        more = engine.gpu_notes() if suite == "engine-gpu" and reason_for_no_cuda() is None else {}
        more |= {"notes": notes} if notes else {}
        path = report.write_json(suite, outcomes, machine.describe(versions), **more)
        print(f"wrote benchmarks/results/{path.name}")
    if arguments.check and (missed := report.missed(outcomes) + [note for note in notes if "MISSED" in note]):
        print("\n".join(missed))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
