"""Replays a recording: applies the same edits and frames to a new engine, and compares every output bit by bit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from livegrad.diagnostics import LivegradError, UsageError, caller_origin, file_error
from livegrad.live.engine import Engine
from livegrad.live.graph.block import Block, State
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.problems import GraphError
from livegrad.live.graph.sources import ExternalBuffer
from livegrad.live.recording.exact_values import decode_value
from livegrad.live.recording.rebuild import BlockReader
from livegrad.live.recording.record import FORMAT, read_outputs
from livegrad.ops.context import parse_feature

Line = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """A difference between the recording and the replay in one frame.

    >>> print(Difference(3, "double.result", "float64 8.0", "float64 12.0"))
    frame 3: double.result: recorded float64 8.0, replayed float64 12.0
    """

    frame: int
    what: str
    recorded: str
    replayed: str

    def __str__(self) -> str:
        return f"frame {self.frame}: {self.what}: recorded {self.recorded}, replayed {self.replayed}"


@dataclass(frozen=True)
class Replay:
    """The result of a replay: the number of frames, the differences from the recording, and the final state in
    `engine`.

    >>> import tempfile, livegrad as lg
    >>> folder = tempfile.TemporaryDirectory()
    >>> with lg.live.record(lg.Engine(), folder.name + "/session.jsonl") as recording:
    ...     _ = recording.engine.step()
    >>> replay(recording.path, trust=True)
    Replay(engine=<engine on cpu: 0 blocks, 1 frames>, frames=1, differences=())
    >>> folder.cleanup()
    """

    engine: Engine
    frames: int
    differences: tuple[Difference, ...]


def replay(path: str | Path, *, trust: bool = False, backend: str | None = None) -> Replay:
    """Replays a recording on a new engine and compares every output of every frame bit by bit.

    A recording contains Python code, which is executed: pass `trust=True` if you trust the source of the file.
    `backend` selects a different backend from that of the recording; other backends may round differently.

    >>> import tempfile, livegrad as lg
    >>> folder = tempfile.TemporaryDirectory()
    >>> engine = lg.Engine()
    >>> with lg.live.record(engine, folder.name + "/session.jsonl") as recording:
    ...     double = engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
    ...     _ = engine.step()
    ...     engine.set(double["x"], 5.0)
    ...     _ = engine.step()
    >>> replayed = replay(recording.path, trust=True)
    >>> replayed.frames, replayed.differences, float(replayed.engine.read(replayed.engine.graph.blocks["double"]))
    (2, (), 10.0)
    >>> folder.cleanup()
    """
    if not trust:
        raise UsageError(
            "a recording contains Python code, which a replay runs",
            where=caller_origin(),
            help="if you trust its source: replay(path, trust=True), or `livegrad replay FILE --trust`",
        )
    return _Replayer(read_lines(Path(path)), backend).run()


def read_lines(path: Path) -> list[Line]:
    """The lines of a recording, without an incomplete last line, which a crash may leave."""
    lines = []
    try:
        texts = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise file_error(error, path, "lg.live.record(engine, path) writes one") from None
    except UnicodeDecodeError:
        raise UsageError(
            f"`{path.name}` is not a recording", where=caller_origin(), found="bytes that are not UTF-8 text"
        ) from None
    for line_number, text in enumerate(texts, 1):
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError as error:
            if lines and line_number > len(lines) and text == texts[-1]:
                break
            raise UsageError(f"line {line_number} of `{path.name}` is not valid JSON: {error.msg}") from error
    if not lines or not isinstance(lines[0], dict) or lines[0].get("recording") != FORMAT:
        found = lines[0].get("recording", "none") if lines and isinstance(lines[0], dict) else "none"
        raise UsageError(f"`{path.name}` is not a recording", expected=f"format {FORMAT}", found=str(found))
    return lines


@dataclass(eq=False)
class _BrokenFile:
    """Stands for a watched file: recordings contain the errors of files, not the files."""

    block: Block
    error: LivegradError | None = None

    def poll(self) -> None:
        """Does nothing: the recording contains the edits."""


class _Replayer:
    """Applies the lines of one recording."""

    def __init__(self, lines: list[Line], backend: str | None) -> None:
        head, *self._lines = lines
        self.engine = Engine(backend or head["backend"], reuse_memory=head["reuse_memory"])
        self._reader = BlockReader()
        self._initial: dict[State, Any] = {}  # the initial values of states that start from other values
        self._broken_files: dict[int, _BrokenFile] = {}  # by block id
        self._frames = 0
        self._differences: list[Difference] = []

    def run(self) -> Replay:
        """Replays all lines in order."""
        for position, line in enumerate(self._lines):
            if "edit" in line:
                self._edit(line)
            elif "function" in line:
                self._reader.functions.note(line)
            elif "memory" in line:
                self._write_memory(line)
            elif "state" in line:
                self._start_state(line)
            elif "step" in line:
                following = self._lines[position + 1] if position + 1 < len(self._lines) else {}
                if "interrupted" not in following:
                    self._step(line)
            elif "frame" in line:
                self._compare(line)
        return Replay(self.engine, self._frames, tuple(self._differences))

    # --- edits ---

    def _edit(self, line: Line) -> None:
        edit = line["edit"]
        if edit == "feature":
            value = None if line["value"] is None else decode_value(line["value"])
            self.engine._set_feature(parse_feature(line["feature"]), value)
        elif edit == "reset":
            state = self._reader.blocks[line["block"]]
            assert isinstance(state, State)
            state.initial = self._initial.pop(state, state.initial)
            self.engine.reset(state)
        elif edit == "state":
            state = self._reader.blocks[line["block"]]
            assert isinstance(state, State)
            self.engine.set(state, decode_value(line["value"]))
        elif edit == "rename":
            self.engine.rename(self._reader.blocks[line["block"]], line["name"])
        elif edit == "keep":
            self.engine.keep(self._reader.pin(line["pin"]))
        elif edit == "expose":
            composite = self._reader.blocks[line["block"]]
            assert isinstance(composite, Composite)
            composite.expose(self._reader.pin(line["pin"]), line["name"])
        elif edit == "hide":
            composite = self._reader.blocks[line["block"]]
            assert isinstance(composite, Composite)
            composite.hide(composite[line["name"]])
        elif edit == "exposures":
            composite = self._reader.blocks[line["block"]]
            assert isinstance(composite, Composite)
            inputs = {name: [self._reader.pin(pin) for pin in pins] for name, pins in line["inputs"].items()}
            composite.restore_exposed(inputs, {name: self._reader.pin(pin) for name, pin in line["outputs"].items()})
        else:
            self._edit_graph(edit, self._graph(line["in"]), line)

    def _graph(self, block_id: int | None) -> Graph:
        if block_id is None:
            return self.engine.graph
        composite = self._reader.blocks[block_id]
        assert isinstance(composite, Composite)
        return composite.graph

    def _edit_graph(self, edit: str, graph: Graph, line: Line) -> None:
        match edit:
            case "add":
                graph.add(self._reader.block(line["block"]))
            case "remove":
                graph.remove(self._reader.blocks[line["block"]])
            case "edit":
                graph.edit(self._reader.blocks[line["block"]], self._reader.body(line["body"]))
            case "connect":
                graph.connect(self._reader.pin(line["source"]), self._reader.pin(line["pin"]))
            case "disconnect":
                graph.disconnect(self._reader.pin(line["pin"]))
            case "set":
                graph.set(self._reader.pin(line["pin"]), decode_value(line["value"]))
            case "bind":
                graph.bind(self._reader.pin(line["pin"]), self._reader.memory[line["memory"]])
            case "feed":
                self._reader.feed(graph, self._reader.pin(line["pin"]), line["source"])
            case "suspend":
                block_id, name = line["pin"]
                self._reader.suspend(graph, block_id, name, line["source"])

    def _write_memory(self, line: Line) -> None:
        array = decode_value({key: line[key] for key in ("dtype", "shape", "data")})
        memory = self._reader.memory.get(line["memory"])
        if memory is None:
            self._reader.memory[line["memory"]] = ExternalBuffer(array, line["version"])
        else:
            memory.array[...] = array
            memory.version = line["version"]

    # --- frames ---

    def _start_state(self, line: Line) -> None:
        """Starts a state from the value that it had when the recording began."""
        state = self._reader.blocks[line["state"]]
        assert isinstance(state, State)
        self._initial[state] = state.initial
        state.initial = decode_value(line["value"])

    def _step(self, line: Line) -> None:
        self._frames += 1
        for broken_file in self._broken_files.values():
            broken_file.error = None
        for block_id, text in line.get("watched", ()):
            broken_file = self._broken_files.setdefault(block_id, _BrokenFile(self._reader.blocks[block_id]))
            broken_file.error = GraphError(text)
            self.engine.follow(broken_file)
        self.engine.step()
        for state, initial in self._initial.items():
            state.initial = initial
        self._initial.clear()

    def _compare(self, line: Line) -> None:
        frame, frame_index = self.engine.frame, line["frame"]
        problems = [problem[:2] for problem in line.get("problems", ())]
        recorded: Mapping[str, Any] = {"problems": problems, "failed": line.get("failed")}
        replayed = {
            "problems": [[problem.node, problem.pin] for problem in frame.problems],
            "failed": sorted(frame.failed),
        }
        for what, before in recorded.items():
            if what in line and before != replayed[what]:
                self._differences.append(Difference(frame_index, what, str(before), str(replayed[what])))
        ids = {id(block): block_id for block_id, block in self._reader.blocks.items()}
        outputs = {(ids[id(pin.block)], pin.name): (pin, value) for pin, value in read_outputs(self.engine)}
        for block, name, before in line.get("outputs", ()):
            pin, value = outputs.get((block, name), (f"{self._reader.blocks[block].name}.{name}", None))
            if value != before:
                self._differences.append(
                    Difference(frame_index, str(pin), _describe_output(before), _describe_output(value))
                )


def _describe_output(value: Any) -> str:
    """An output as text."""
    if not isinstance(value, dict) or "data" not in value:
        return str(value)
    array = decode_value(value)
    return f"{array.dtype} {array.tolist()}"
