"""Defects of frames: of posted numbers, of what fails, of what waits, of memory of others, of watched files."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

from livegrad.live import engine, nan_watch, runtime
from livegrad.live.blocks import source_files
from livegrad.live.cpu import cpu_calls, cpu_executor
from livegrad.live.graph import journal
from tests.fuzz import engine_files
from tests.fuzz.engine_mutation import mutant, rewritten

compile_code = builtins.compile


@mutant("a posted number is noted after it is taken")
def _posted_too_late() -> Iterator[Any]:
    note = 'self.entries.append(Entry("value", pin, (previous, value)))'
    take = "box.sources[pin] = Setting(value, before.input_type, before.lineage)"
    deliver = rewritten(journal.Journal.deliver, (note, "pass"), (take, f"{take}\n            {note}"))
    with mock.patch.object(journal.Journal, "deliver", deliver):
        yield


# --- what fails, and what waits ---------------------------------------------------------------------------------------


@mutant("reading blames the first failure of a frame")
def _first_failure() -> Iterator[Any]:
    keep_stale = runtime.Runtime._keep_failed_stale

    def careless(self: Any, reasons: Any, report: Any) -> None:
        keep_stale(self, reasons, report)
        self.failed = dict.fromkeys(self.failed, next(iter(self.failed.values())))

    with mock.patch.object(runtime.Runtime, "_keep_failed_stale", careless):
        yield


@mutant("a value that is computed late reads states that have moved on")
def _late_states() -> Iterator[Any]:
    advance = cpu_executor.CpuExecutable.advance

    def forgetful(self: Any) -> None:
        advance(self)
        self._before.clear()

    with mock.patch.object(cpu_executor.CpuExecutable, "advance", forgetful):
        yield


@mutant("a block that waited does not run when it is read")
def _never_caught_up() -> Iterator[Any]:
    with mock.patch.object(runtime.Runtime, "catch_up"):
        yield


# --- NaN --------------------------------------------------------------------------------------------------------------


@mutant("what reads a NaN has a value")
def _nan_is_read() -> Iterator[Any]:
    with mock.patch.object(nan_watch, "_depends_on", return_value=False):
        yield


@mutant("a NaN inside of a branch is not looked for")
def _only_results_watched() -> Iterator[Any]:
    with mock.patch.object(nan_watch, "_first_error", rewritten(nan_watch._first_error, ("step.leaf_steps()", "()"))):
        yield


@mutant("the NaN of a branch that was left is still there")
def _old_nans() -> Iterator[Any]:
    first_error = rewritten(nan_watch._first_error, ("report.calls.get(leaf.key, 0) and ", ""))
    with mock.patch.object(nan_watch, "_first_error", first_error):
        yield


@mutant("a value that is computed late is not watched for NaN")
def _late_nan() -> Iterator[Any]:
    catch_up = rewritten(runtime.Runtime.catch_up, ("if watch.active:", "if False:"))
    with mock.patch.object(runtime.Runtime, "catch_up", catch_up):
        yield


@mutant("states take values that were made beside a failure")
def _states_go_on() -> Iterator[Any]:
    conclude = rewritten(runtime.Runtime._conclude, ("plan.states and not report.failures", "plan.states"))
    with mock.patch.object(runtime.Runtime, "_conclude", conclude):
        yield


# --- memory of others -------------------------------------------------------------------------------------------------


@mutant("memory that its owner has resized is read")
def _resized_is_read() -> Iterator[Any]:
    with mock.patch.object(cpu_calls.CallFactory, "_guard_bound_memory", lambda self, step, call: call):
        yield


@mutant("memory that its owner has resized in its place is read")
def _only_the_address() -> Iterator[Any]:
    careless = "if layout_of(array) != layout:", "if layout_of(array)[0] != layout[0]:"
    guarded = rewritten(cpu_calls.CallFactory._guard_bound_memory, careless)
    with mock.patch.object(cpu_calls.CallFactory, "_guard_bound_memory", guarded):
        yield


@mutant("memory that is bound again counts as resized for ever")
def _never_bound_again() -> Iterator[Any]:
    lost = 'BufferSpec(key, plan.buffers[key].element, (-1,), "external")'
    careless = "self.call_factory.bound[key] = plan.buffers[key]", f"self.call_factory.bound[key] = {lost}"
    update = rewritten(cpu_executor.CpuExecutable.update, careless)
    with mock.patch.object(cpu_executor.CpuExecutable, "update", update):
        yield


# --- watched files ----------------------------------------------------------------------------------------------------


@mutant("a file with a byte order mark or a coding line is not read", run=engine_files)
def _plain_utf8() -> Iterator[Any]:
    with mock.patch.object(source_files, "decode_source", lambda source: source.decode("utf-8")):
        yield


@mutant("sys.exit in a watched file ends the host", run=engine_files)
def _exits() -> Iterator[Any]:
    def trusting(path: Any, names: dict[str, Any]) -> Any:
        tree = source_files._parse(path)
        try:
            exec(compile_code(tree, str(path), "exec"), names)
        except Exception as error:
            raise source_files.GraphError(f"`{path.name}` raised {error}") from error
        return tree

    with mock.patch.object(source_files, "_run", trusting):
        yield


@mutant("a watched file that is wrong leaves the frame as it is", run=engine_files)
def _silent() -> Iterator[Any]:
    with mock.patch.object(engine, "report_watch_errors"):
        yield


@mutant("modules that a watched file imports are not followed", run=engine_files)
def _helpers_not_followed() -> Iterator[Any]:
    with mock.patch.object(source_files.SourceFile, "files", lambda self: {self.path: self._stamp}):
        yield


@mutant("a module that was saved while the file did not import it stays as it was", run=engine_files)
def _old_helper() -> Iterator[Any]:
    load = source_files.SourceFile.load

    def forgetful(self: Any, name: str) -> Any:
        kept = {sys.modules.get(helper) for helper in self._helpers}
        for module in [module for module in source_files._runs if module not in kept]:
            del source_files._runs[module]
        return load(self, name)

    with mock.patch.object(source_files.SourceFile, "load", forgetful):
        yield


@mutant("watchers of blocks that were removed stay", run=engine_files)
def _watchers_stay() -> Iterator[Any]:
    def trusting(journal: Any) -> None:
        for watch in tuple(journal.watches):
            watch.block.debug.errors = [own for own in watch.block.debug.errors if own is not watch.error]
            watch.poll()

    with mock.patch.object(engine, "poll_watches", trusting):
        yield
