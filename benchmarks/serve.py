"""The other side of `benchmarks.worker.Process`: reads one JSON request a line and answers with one JSON line."""

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

Answer = Callable[[dict[str, Any]], dict[str, Any]]


def serve(start: Callable[[], tuple[str, Answer]]) -> None:
    """Serves until the input ends. `start` imports a library and returns its version and what answers requests."""
    # Libraries may print; answers get a stream that nothing else writes to.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    version, answer = start()
    print(json.dumps({"version": version}), file=answers)
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except Exception as error:  # a contender that fails is a line of the table
            traceback.print_exc()
            reply = {"unavailable": f"{type(error).__name__}: {str(error)[:200]}"}
        print(json.dumps(reply), file=answers)
