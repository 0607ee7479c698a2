"""Polls the watches of an engine before a frame, and reports their errors as problems of the frame.

A watch edits its block when something outside has changed, such as a file. `Engine.step` calls both functions.
"""

from __future__ import annotations

from livegrad.live.compile.flatten import find_keys
from livegrad.live.frame import Frame
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.journal import Journal
from livegrad.live.graph.problems import Problem


def poll_watches(journal: Journal) -> None:
    """Polls all watches before a frame takes the journal. Drops watches whose blocks were removed."""
    with journal.lock:
        graphs = ((watch, watch.block.home) for watch in journal.watches)
        journal.watches = [watch for watch, graph in graphs if graph is not None and graph.journal is journal]
        watches = tuple(journal.watches)
    for watch in watches:
        if watch.error in watch.block.debug.errors:
            watch.block.debug.errors.remove(watch.error)
        watch.poll()


def report_watch_errors(graph: Graph, frame: Frame) -> None:
    """Adds the errors of watches to the problems of a frame. The last code keeps running."""
    with graph.journal.lock:
        for watch in graph.journal.watches:
            keys, debug = find_keys(graph, watch.block), watch.block.debug
            if keys and watch.error is not None:
                # Problems of the previous code are out of date: the file no longer contains it.
                outdated = [p for p in frame.problems if p.block is watch.block and p.pin is None]
                others = [p for p in frame.problems if p not in outdated]
                frame.problems = (*others, Problem(keys[0], watch.block, None, watch.error))
                outdated_errors = {id(p.error) for p in outdated}
                debug.errors = [*(error for error in debug.errors if id(error) not in outdated_errors), watch.error]
