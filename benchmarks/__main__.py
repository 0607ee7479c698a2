"""`python -m benchmarks [names] [--quick] [--json] [--check] [--page]`, started by `./bench`."""

import argparse
import sys

from benchmarks import context, engine, foundation, gradients, machine, page, parts, passes, report, tensors
from benchmarks.harness import Benchmark, Effort, Outcome, limit_threads, measure
from benchmarks.worker import Workers
from livegrad.runtime.cuda import reason_for_no_cuda

SUITES = {
    "context": context.rows,
    "engine": engine.rows,
    "engine-gpu": engine.gpu_rows,
    "foundation": foundation.rows,
    "gradients": gradients.rows,
    "implicit": parts.rows,
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
    known = set(suites) | {row.name for row in every}
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"no benchmark is called {', '.join(unknown)}; there are: {', '.join(sorted(known))}")
    wanted = {row.name for name in names for row in suites.get(name, ())} | set(names)
    return [row for row in every if not names or row.name in wanted]


def measure_all(benchmarks: list[Benchmark], workers: Workers, effort: Effort) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for benchmark in benchmarks:
        outcomes.append(measure(benchmark, workers, effort))
        print(report.table(outcomes[-1]), flush=True)
    return outcomes


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
    workers = Workers()
    try:
        outcomes = measure_all(benchmarks, workers, effort)
    finally:
        workers.close()
    if arguments.json:
        suite = "+".join(arguments.names or SUITES)
        more = engine.gpu_notes() if suite == "engine-gpu" and reason_for_no_cuda() is None else {}
        path = report.write_json(suite, outcomes, machine.describe(workers.versions()), **more)
        print(f"wrote benchmarks/results/{path.name}")
    if arguments.check and (missed := report.missed(outcomes)):
        print("\n".join(missed))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
