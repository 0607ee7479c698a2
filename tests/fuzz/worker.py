"""`python -m tests.fuzz.worker NAME OPTIONS LIMIT`: reads seeds from standard input, answers each with a line of JSON.

Started by `pool.py`. What a case prints goes to standard error, so that answers stay apart. A case that runs
longer than the limit ends the process, with the stacks of all threads. Memory that nothing has written holds NaNs.
"""

import faulthandler
import importlib
import json
import os
import sys
import time
import traceback

from tests.fuzz.poisoned_memory import poison_memory


def main() -> None:
    name, options, limit = sys.argv[1], json.loads(sys.argv[2]), float(sys.argv[3])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    faulthandler.enable()
    poison_memory()
    run_one = importlib.import_module(f"tests.fuzz.{name}").run_one
    for line in sys.stdin:
        faulthandler.dump_traceback_later(limit, exit=True)
        started = time.perf_counter()
        try:
            answer = {"counts": dict(run_one(int(line), **options))}
        except Exception:
            answer = {"error": traceback.format_exc(limit=-12)}
        faulthandler.cancel_dump_traceback_later()
        answers.write(json.dumps(answer | {"seconds": time.perf_counter() - started}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
