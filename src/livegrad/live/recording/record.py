"""Records the edits and frames of a live engine as they happen, one line of JSON each.

`record` observes the journal of an engine. Each line is written before the next event, so that after a crash the file
can be replayed up to the frame that crashed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from livegrad.diagnostics import LivegradError, UsageError, caller_origin, file_error, missing_folder
from livegrad.live.engine import Engine
from livegrad.live.frame import Frame
from livegrad.live.graph.block import Block, Pin, State, only_output
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.regions import Region
from livegrad.live.graph.sources import Binding, Numbers, array_of
from livegrad.live.recording.describe import Describer, Line
from livegrad.live.recording.exact_values import encode_array, encode_value

FORMAT = 1
_LARGEST_EXACT = 4096  # bytes: larger outputs are recorded as SHA-256 hashes


def record(engine: Engine, path: str | Path) -> Recording:
    """Records all further edits and frames of an engine to a file that `replay` can run again, bit by bit.

    Functions of blocks are recorded by their source; a function without source is an error. All outputs are read after
    every frame, so use recording for debugging, not in production.

    >>> import tempfile, livegrad as lg
    >>> folder = tempfile.TemporaryDirectory()
    >>> engine = lg.Engine()
    >>> with record(engine, folder.name + "/session.jsonl") as recording:
    ...     double = engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
    ...     _ = engine.step()
    >>> replayed = lg.live.replay(recording.path, trust=True)
    >>> replayed.frames, replayed.differences
    (1, ())
    >>> folder.cleanup()
    """
    if not isinstance(engine, Engine):
        raise UsageError("`record` takes an engine first", where=caller_origin(), found=type(engine).__name__)
    return Recording(engine, Path(path))


class Recording:
    """A recording in progress. `close`, or the end of a `with` block, ends it.

    >>> import tempfile, livegrad as lg
    >>> folder = tempfile.TemporaryDirectory()
    >>> recording = record(lg.Engine(), folder.name + "/session.jsonl")
    >>> recording.close()
    >>> recording.path.read_text()
    '{"recording": 1, "backend": "cpu", "reuse_memory": false}\\n'
    >>> folder.cleanup()
    """

    def __init__(self, engine: Engine, path: Path) -> None:
        self.engine, self.path = engine, path
        self._file: IO[str] | None = None
        self._describer = Describer(self._write)
        self._in_frame = False  # a frame has begun and not ended
        engine.observe(self._begin)

    def close(self) -> None:
        """Ends the recording."""
        if self._file is not None:
            self.engine.observe(None)
            self._note_interruption()
            self._file.close()
            self._file = None

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, line: Line) -> None:
        """Writes and flushes one line."""
        assert self._file is not None
        self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._file.flush()

    def _begin(self) -> Recording:
        """Opens the file, and writes the state of the engine."""
        try:
            self._file = self.path.open("w", encoding="utf-8")
        except FileNotFoundError:
            raise missing_folder(self.path.parent) from None
        except OSError as error:
            raise file_error(error, self.path, "record to another path") from None
        try:
            self._write_engine(self.engine)
        except BaseException:
            self._file.close()
            self._file = None
            raise
        return self

    def _write_engine(self, engine: Engine) -> None:
        self._write({"recording": FORMAT, "backend": engine.executor.name, "reuse_memory": engine.reuse_memory})
        for block in engine.graph.blocks.values():
            self._write({"edit": "add", "in": None, "block": self._describer.block(block)})
            self._describer.commit()
        for pin, source in engine.graph.sources.items():
            target = self._describer.pin(pin)
            self._write({"edit": "feed", "in": None, "pin": target, "source": self._describer.source(source)})
        for *target, source in self._describer.dormant(engine.graph):
            self._write({"edit": "suspend", "in": None, "pin": target, "source": source})
        for feature, value in engine.features.items():
            self._write({"edit": "feature", "feature": str(feature), "value": encode_value(value)})
        for block in _blocks_of(engine.graph):
            if isinstance(block, State) and engine.plan is not None:
                try:
                    value = engine.read(block, running=True)
                except LivegradError:
                    continue  # a new state, which starts from its initial value
                self._write({"state": self._describer.id_of(block), "value": encode_array(value)})

    # --- the interface of `Observer` ---

    def before_edit(self, edit: str, arguments: tuple[Any, ...]) -> Any:
        """Describes an edit before it is made; raises if it cannot be recorded."""
        self._note_interruption()
        self._describer.roll_back()
        if edit == "add" and isinstance(arguments[0], Block):
            return self._describer.block(arguments[0])
        return self._describer.body(arguments[1]) if edit == "edit" else None

    def after_edit(self, edit: str, graph: Graph | None, arguments: tuple[Any, ...], before: Any) -> None:
        """Writes a completed edit."""
        if edit in ("move", "control", "preset"):
            return  # computation ignores it
        self._note_interruption()
        line: Line = {"edit": edit}
        if graph is not None:
            line["in"] = self._describer.graph(graph, self.engine.graph)
        self._write(line | self._arguments(edit, graph, arguments, before))
        self._describer.commit()

    def _arguments(self, edit: str, graph: Graph | None, arguments: tuple[Any, ...], before: Any) -> Line:
        describer, first = self._describer, arguments[0]
        match edit:
            case "add":
                return {"block": before}
            case "remove" | "reset":
                return {"block": describer.id_of(first)}
            case "state":
                return {"block": describer.id_of(first), "value": encode_value(arguments[1])}
            case "rename":
                return {"block": describer.id_of(first), "name": arguments[1]}
            case "edit":
                return {"block": describer.id_of(first), "body": before}
            case "connect":
                return {"source": describer.pin(only_output(first)), "pin": describer.pin(arguments[1])}
            case "set":
                return {"pin": describer.pin(first), "value": _encode_setting(arguments[1])}
            case "bind":
                assert graph is not None
                binding = graph.sources[first]
                assert isinstance(binding, Binding)
                return {"pin": describer.pin(first), "memory": describer.memory(binding.external)}
            case "expose":
                return {"block": describer.id_of(first), "pin": describer.pin(arguments[1]), "name": arguments[2]}
            case "hide":
                return {"block": describer.id_of(first.block), "name": first.name}
            case "exposures":
                inputs = {name: [describer.pin(pin) for pin in pins] for name, pins in arguments[1].items()}
                outputs = {name: describer.pin(pin) for name, pin in arguments[2].items()}
                return {"block": describer.id_of(first), "inputs": inputs, "outputs": outputs}
            case "suspend":
                return {"pin": describer.pin(first), "source": describer.source(arguments[1])}
            case "feature":
                value = None if arguments[1] is None else _encode_setting(arguments[1])
                return {"feature": str(first), "value": value}
        return {"pin": describer.pin(only_output(first))}  # disconnect, keep

    def frame_begins(self) -> None:
        """Marks the start of a frame, which applies the edits so far."""
        self._note_interruption()
        self._describer.write_memory()
        self._in_frame = True
        line: Line = {"step": self.engine.frame.number + 1}
        if broken := self.engine.watch_errors:  # files are not recorded, but their errors are problems of a frame
            line["watched"] = [[self._describer.id_of(block), str(error)] for block, error in broken]
        self._write(line)

    def frame_ends(self, frame: Frame) -> None:
        """Writes the outcome of a frame and all outputs."""
        if not self._in_frame:
            return  # nothing changed and nothing ran
        self._in_frame = False
        line: Line = {"frame": frame.number}
        try:
            line["problems"] = [[problem.node, problem.pin, str(problem)] for problem in frame.problems]
            line["failed"] = sorted(frame.failed)
            line["outputs"] = [[*self._describer.pin(pin), value] for pin, value in read_outputs(self.engine)]
        finally:
            self._write(line)  # even if an interrupt prevents reading outputs, because the frame is complete

    def _note_interruption(self) -> None:
        if self._in_frame:
            self._in_frame = False
            self._write({"interrupted": True})


def _encode_setting(value: Any) -> Any:
    """Encodes a value of a pin. Like the engine, converts everything except numbers to arrays."""
    if value.__class__ in (bool, int, float, complex):
        return value if value.__class__ is not complex else encode_value(value)
    array = array_of(value)
    return encode_value(array[()] if array.ndim == 0 else array)


def read_outputs(engine: Engine) -> Iterator[tuple[Pin, Any]]:
    """Reads every output outside of regions. Yields its encoded value, or the code of the error."""
    running = bool(engine.frame.problems)
    for block in _blocks_of(engine.graph):
        for pin in block.outputs.values():
            try:
                yield pin, encode_output(engine.read(pin, running=running))
            except LivegradError as error:
                yield pin, {"error": error.code}


def encode_output(array: Numbers) -> Line:
    """Encodes an output exactly, or as a hash if it is large."""
    if array.nbytes <= _LARGEST_EXACT:
        return encode_array(array)
    return {
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "sha256": hashlib.sha256(array.tobytes()).hexdigest(),
    }


def _blocks_of(graph: Graph) -> Iterator[Block]:
    """The blocks outside of regions, including those in composites."""
    for block in graph.blocks.values():
        if isinstance(block, Composite) and not isinstance(block, Region):
            yield from _blocks_of(block.graph)
        else:
            yield block
