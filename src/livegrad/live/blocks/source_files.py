"""Reloads Python files and the user modules that they import, for `watch`.

In: a path and the name of a function. Out: that function, and the stamps of the files it depends on, as of their last
run. If a file fails, all modules stay unchanged.
"""

from __future__ import annotations

import ast
import linecache
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.util import decode_source
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from livegrad.diagnostics import TextOrigin
from livegrad.diagnostics.errors import PACKAGE_DIRECTORY
from livegrad.live.graph.problems import GraphError, origin_of_exception

Stamp = tuple[int, int, int]
KEEPS_RUNNING = "the last code keeps running"

_PATHS = sysconfig.get_paths()
_NOT_USER_FOLDERS = tuple(
    os.path.realpath(folder) + os.sep
    for folder in (*(_PATHS[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
                   PACKAGE_DIRECTORY)
)  # fmt: skip


def stamp_of(path: Path) -> Stamp | None:
    """A stamp that changes when a file is saved; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


@dataclass(frozen=True)
class _Run:
    """The last run of a module: the stamp of its file, and the load of a watched file that ran it."""

    stamp: Stamp | None
    load: int


_runs: WeakKeyDictionary[ModuleType, _Run] = WeakKeyDictionary()  # by user module, for all watched files
_loads = count()


class SourceFile:
    """A file with a function, and the user modules that it imports, directly or indirectly."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: Stamp | None = None  # as of its last run
        self._helpers: list[str] = []  # modules by name
        self._unloaded: set[str] = set()  # the names of modules that it mentions but has not imported
        self._imported_stamps: dict[
            Path, Stamp | None
        ] = {}  # user files that its load imported first, including failed ones

    def files(self) -> dict[Path, Stamp | None]:
        """The stamps of the file and of the modules it imports, as of their last run; None: unknown."""
        imported_later = [name for name in self._unloaded if name in sys.modules]  # inside functions
        files = dict(self._imported_stamps)
        for module in map(sys.modules.get, (*self._helpers, *imported_later)):
            file = _file_of(module)
            if module is not None and file is not None:
                files[file] = _runs[module].stamp if module in _runs else None
        return {self.path: self._stamp, **files}

    def load(self, name: str) -> Callable[..., Any]:
        """Runs the file again, after the modules whose files changed, and returns its function `name`."""
        names: dict[str, Any] = {"__name__": self.path.stem, "__file__": str(self.path)}
        self._stamp, load = stamp_of(self.path), next(_loads)  # first: the file may be saved again while it is read
        with _importable(self.path.parent) as imported:
            # Parses the current file, which may import a module again that changed while the file did not import it.
            needed, _ = _helpers_of(_parse(self.path), "")
            # If one of them fails, saving it again triggers a reload.
            self._helpers = list(dict.fromkeys([*self._helpers, *needed]))
            try:
                with _restored_on_failure(self._helpers):
                    runs = self._run_changed(needed, load)
                    self._helpers, self._unloaded = _helpers_of(_run(self.path, names), "")
            finally:
                self._imported_stamps = {path: stamp for path, stamp in imported.values() if _is_user_file(path)}
            _runs.update(runs)
            for helper in self._helpers:
                module = sys.modules[helper]
                if module not in _runs:  # imported first by this load
                    stamp = imported[helper][1] if helper in imported else stamp_of(Path(str(module.__file__)))
                    _runs[module] = _Run(stamp, load)
        if not callable(names.get(name)):
            functions = [key for key, value in names.items() if callable(value) and not key.startswith("_")]
            what, expected = f"`{self.path.name}` has no function `{name}`", ", ".join(functions) or None
            raise GraphError(what, expected=None if expected is None else f"one of {expected}", help=KEEPS_RUNNING)
        return names[name]

    def _run_changed(self, helpers: Iterable[str], load: int) -> dict[ModuleType, _Run]:
        """Runs changed modules and those that import them, in the order of their dependencies.

        Returns the runs, which the caller records if all succeed. Another watched file may have run some of them.
        """
        runs: dict[ModuleType, _Run] = {}
        before: dict[ModuleType, int] = {}  # the loads of earlier modules
        for helper in helpers:
            module = sys.modules.get(helper)
            file = _file_of(module)
            if module is None or file is None:
                continue
            last_run, stamp = _runs.get(module), stamp_of(file)
            if last_run is None and helper not in self._unloaded:  # another file imported it, and it is up to date
                last_run = runs[module] = _Run(stamp, load)
            else:
                imported = map(sys.modules.get, _imports(_parse(file), module.__package__ or ""))
                newest = max((before[dependency] for dependency in imported if dependency in before), default=-1)
                if last_run is None or stamp != last_run.stamp or newest > last_run.load:
                    _run(file, module.__dict__)  # in place, so that other importers see the new code
                    last_run = runs[module] = _Run(stamp, load)
            before[module] = last_run.load
        return runs


def _run(path: Path, names: dict[str, Any]) -> ast.Module:
    """Runs a file in a namespace. Errors refer to its lines."""
    tree = _parse(path)
    linecache.checkcache(str(path))
    try:
        exec(compile(tree, str(path), "exec"), names)
    except (Exception, SystemExit) as error:
        raise GraphError(
            f"`{path.name}` raised {type(error).__name__}: {error}", where=origin_of_exception(error)
        ) from error
    return tree


def _parse(path: Path) -> ast.Module:
    try:
        source = path.read_bytes()
    except OSError as error:
        raise GraphError(f"cannot read `{path.name}`: {error.strerror}", help=KEEPS_RUNNING) from error
    try:
        return ast.parse(decode_source(source), str(path))  # respects byte order marks and coding lines
    except UnicodeDecodeError as error:
        where = TextOrigin(str(path), source.count(b"\n", 0, error.start) + 1)
        raise GraphError(f"`{path.name}` is not valid Python: it is not {error.encoding}", where=where) from error
    except SyntaxError as error:
        where = TextOrigin(str(path), error.lineno or 1, error.offset)
        raise GraphError(f"`{path.name}` is not valid Python: {error.msg}", where=where) from error
    except (ValueError, RecursionError, MemoryError) as error:  # null bytes; nested too deeply
        raise GraphError(f"`{path.name}` is not valid Python: {error}", where=TextOrigin(str(path), 1)) from error


# --- modules of the user ---------------------------------------------------------------------------------------------


def _file_of(module: ModuleType | None) -> Path | None:
    """The source file of a user module; None for modules of Python, libraries and livegrad."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or getattr(module, "__name__", "") == "__main__":
        return None
    return Path(file) if _is_user_file(Path(file)) else None


def _is_user_file(file: Path) -> bool:
    return file.suffix == ".py" and not os.path.realpath(file).startswith(_NOT_USER_FOLDERS)


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    """The names in the import statements of a file that may be modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: -(node.level - 1) or None] if node.level else []
            base = ".".join([*parents, *filter(None, [node.module])])
            named = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in named:
            parts = name.split(".")
            yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _helpers_of(tree: ast.Module, package: str) -> tuple[list[str], set[str]]:
    """The user modules that a file imports, directly or indirectly, in dependency order; and unloaded modules."""
    helpers: dict[str, None] = {}
    entered: set[str] = set()

    def visit(tree: ast.Module, package: str) -> None:
        for name in _imports(tree, package):
            module = sys.modules.get(name)
            file = _file_of(module)
            if name not in entered:
                entered.add(name)
                if module is not None and file is not None:
                    visit(_parse(file), module.__package__ or "")
                    helpers[name] = None

    visit(tree, package)
    return list(helpers), {name for name in entered if name not in sys.modules}


class _ImportRecorder:
    """An import finder that only records the stamps of files before Python imports them. It never returns a module."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[Path, Stamp | None]] = {}  # by module

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None:
            self.files[name] = Path(spec.origin), stamp_of(Path(spec.origin))


@contextmanager
def _importable(folder: Path) -> Iterator[dict[str, tuple[Path, Stamp | None]]]:
    """Makes modules next to the file importable, as when Python runs it. Yields the imported files."""
    entry, recorder = str(folder.resolve()), _ImportRecorder()
    sys.path.insert(0, entry)
    sys.meta_path.insert(0, recorder)
    try:
        yield recorder.files
    finally:
        # By identity, because the file may have edited the lists, and equal entries may have another origin.
        sys.path[:] = [item for item in sys.path if item is not entry]
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not recorder]


@contextmanager
def _restored_on_failure(helpers: list[str]) -> Iterator[None]:
    """Restores the modules if the file, or one of them, fails."""
    before = {name: dict(sys.modules[name].__dict__) for name in helpers if name in sys.modules}
    try:
        yield
    except BaseException:
        for name, names in before.items():
            module = sys.modules[name].__dict__
            module.clear()
            module.update(names)
        raise
