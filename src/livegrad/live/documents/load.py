"""Opens documents. Reading a document runs no code: its functions stay text until the caller trusts the file."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from livegrad.diagnostics import LivegradError, UsageError, caller_origin, file_error
from livegrad.live.documents.readable_values import from_readable
from livegrad.live.documents.save import FORMAT
from livegrad.live.documents.tables import Table, function_line, graph_lines, parse_pin
from livegrad.live.engine import EXECUTORS, Engine
from livegrad.live.graph.control import Control
from livegrad.live.recording.rebuild import BlockReader, Line

DAMAGE_ERRORS = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError)


class DocumentError(UsageError):
    """A file is not a document of livegrad, is damaged, or was written by a newer version.

    >>> import tempfile, livegrad as lg
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     try:
    ...         lg.load_document(file.name)
    ...     except DocumentError as error:
    ...         print(error.found)
    no version of the format
    """

    code = "document"


@dataclass(frozen=True)
class Document:
    """A document that was read without running its code.

    `functions` has the Python source of its functions by name. `bound` has the inputs that read memory of the program
    that saved the document; bind them again.

    >>> import tempfile, livegrad as lg
    >>> folder = tempfile.TemporaryDirectory()
    >>> lg.Engine().save(folder.name + "/scene.lg")
    >>> document = lg.load_document(folder.name + "/scene.lg")
    >>> document.path.name, document.functions, document.bound
    ('scene.lg', {}, ())
    >>> folder.cleanup()
    """

    path: Path
    functions: dict[str, str]
    bound: tuple[str, ...]
    _tables: Table

    def engine(self, *, trust: bool = False, backend: str | None = None) -> Engine:
        """Builds the engine, which will run the functions of the file. Pass `trust=True` if you trust the file.

        `backend` replaces the backend that the document names.

        >>> import tempfile, livegrad as lg
        >>> folder = tempfile.TemporaryDirectory()
        >>> engine = lg.Engine()
        >>> double = engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
        >>> engine.save(folder.name + "/scene.lg")
        >>> again = lg.load_document(folder.name + "/scene.lg").engine(trust=True)
        >>> _ = again.step()
        >>> float(again.read(again.graph.blocks["double"]))
        8.0
        >>> folder.cleanup()
        """
        if self.functions and not trust:
            raise UsageError(
                f"`{self.path.name}` contains Python code, which its blocks would run",
                where=caller_origin(),
                help="look at `document.functions`; if you trust the file: document.engine(trust=True)",
            )
        engine = Engine(backend or _named_backend(self._tables), reuse_memory=bool(self._tables.get("reuse_memory")))
        try:
            with engine.edits():
                self._build(engine)
            engine.history.clear()
        except BaseException:
            engine.close()
            raise
        return engine

    def _build(self, engine: Engine) -> None:
        reader = BlockReader()
        try:
            for name, table in self._tables.get("functions", {}).items():
                reader.functions.note(function_line(name, table))
            described = graph_lines(self._tables["blocks"])
            reader.fill(engine.graph, described)
            set_appearance(reader, described)
            for name, values in self._tables.get("presets", {}).items():
                preset = {reader.blocks[path][pin]: from_readable(value) for path, pin, value in _preset_values(values)}
                engine.presets.restore(name, preset)
            for feature, value in self._tables.get("features", {}).items():
                engine.set_feature(feature, from_readable(value))
        except LivegradError:
            raise
        except DAMAGE_ERRORS as error:
            raise _damaged(self.path, error) from error


def load_document(path: str | os.PathLike[str]) -> Document:
    """Reads a file that `Engine.save` wrote. No code runs before `document.engine(trust=True)`.

    >>> import tempfile, livegrad as lg
    >>> folder = tempfile.TemporaryDirectory()
    >>> engine = lg.Engine()
    >>> _ = engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
    >>> engine.save(folder.name + "/scene.lg")
    >>> document = lg.load_document(folder.name + "/scene.lg")
    >>> print(document.functions["double"])
    recorded = lambda x=None: x * 2.0
    >>> folder.cleanup()
    """
    file = Path(path)
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise file_error(error, file, "engine.save(path) writes one") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _not_a_document(file, f"{error}") from None
    if not isinstance(tables.get("livegrad"), int) or tables.get("kind") != "engine":
        raise _not_a_document(file, "no version of the format")
    if tables["livegrad"] > FORMAT:
        raise DocumentError(
            f"`{file.name}` was written by a newer version of livegrad",
            where=caller_origin(),
            expected=f"format {FORMAT}",
            found=f"format {tables['livegrad']}",
            help="update livegrad to open it",
        )
    try:
        functions = read_functions(tables)
        bound = tuple(_bound_pins(tables["blocks"], ""))
        graph_lines(tables["blocks"])  # raises if entries are missing
    except DAMAGE_ERRORS as error:
        raise _damaged(file, error) from error
    return Document(file, functions, bound, tables)


def read_functions(tables: Table) -> dict[str, str]:
    """The source of the functions of a document, by name."""
    return {name: _source_of(table) for name, table in tables.get("functions", {}).items()}


def _preset_values(table: Table) -> list[tuple[str, str, Any]]:
    return [(*parse_pin(text), value) for text, value in table.items()]  # type: ignore[misc]


def _source_of(table: Table) -> str:
    return str(table["text"] if "text" in table else f"import {table['import']}")


def _bound_pins(tables: Table, parent_path: str) -> list[str]:
    """The inputs that read memory of the program that saved the document, as `path.pin`."""
    pins: list[str] = []
    for name, table in tables.items():
        path = f"{parent_path}{name}"
        inputs: Table = table.get("inputs", {})
        pins += [f"{path}.{pin}" for pin, entry in inputs.items() if isinstance(entry, dict) and "bound" in entry]
        pins += _bound_pins(table.get("blocks", {}), f"{path}/")
        pins += _bound_pins(table.get("bodies", {}), f"{path}/")
    return pins


def set_appearance(reader: BlockReader, described: Line) -> None:
    """Sets the positions of blocks in drawings, and the controls of pins."""
    for line in described["blocks"]:
        if "at" in line:
            reader.blocks[line["id"]].position = line["at"]
        for pin, table in line.get("controls", {}).items():
            reader.blocks[line["id"]][pin].control = Control(**table)
        if line.get("kind") == "composite":
            set_appearance(reader, line)
        for body in line.get("bodies", {}).values():
            set_appearance(reader, {"blocks": [body]})


def _named_backend(tables: Table) -> str:
    name = tables.get("backend", "cpu")
    return name if isinstance(name, str) and name in EXECUTORS else "cpu"


def _not_a_document(path: Path, found: str) -> DocumentError:
    help = "engine.save(path) writes documents"
    return DocumentError(f"`{path.name}` is not a document of livegrad", where=caller_origin(), found=found, help=help)


def _damaged(path: Path, error: Exception) -> DocumentError:
    found: Any = f"no `{error.args[0]}`" if isinstance(error, KeyError) and error.args else f"{error}"
    return DocumentError(f"`{path.name}` is damaged", where=caller_origin(), found=found)
