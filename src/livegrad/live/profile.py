"""Exports the step times of frames with `engine.profiling = "block"` as a Chrome trace.

In: frames. Out: JSON for chrome://tracing and Perfetto.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from livegrad.live.frame import Frame


def chrome_trace(frames: Iterable[Frame]) -> str:
    """Returns the steps of these frames as a Chrome trace, each with its level and the reason it ran.

    Omits frames without times.

    >>> frame = Frame(1, seconds={"a": 2e-6}, started={"a": 1.0}, reasons={"a": "added"})
    >>> json.loads(chrome_trace([frame]))["traceEvents"][0]["name"]
    'a'
    """
    events = []
    for frame in frames:
        for key, seconds in (frame.seconds or {}).items():
            change = frame.changes.get(key)
            events.append(
                {
                    "name": key,
                    "ph": "X",
                    "ts": 1e6 * (frame.started or {})[key],
                    "dur": 1e6 * seconds,
                    "pid": 0,
                    "tid": 0,
                    "args": {
                        "frame": frame.number,
                        "level": "none" if change is None else change.level.name.lower(),
                        "reason": frame.reasons.get(key, ""),
                        "calls": frame.calls.get(key, 1),
                    },
                }
            )
    return json.dumps({"traceEvents": events})
