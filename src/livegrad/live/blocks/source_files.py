"""Reloads Python files and the user modules that they import. Called by `watch`.

In: a path and the name of a function. Out: that function, and the files it depends on. If a file fails, all modules
stay unchanged.
"""

from __future__ import annotations

import ast
import linecache
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import decode_source
from pathlib import Path
from types import ModuleType
from typing import Any

from livegrad.diagnostics import TextOrigin
from livegrad.diagnostics.errors import PACKAGE_DIRECTORY
from livegrad.live.graph.problems import GraphError, raised_at

Stamp = tuple[int, int, int]
RUNS_ON = "the last code keeps running"

_PATHS = sysconfig.get_paths()
_NOT_THE_USERS = tuple(
    os.path.realpath(folder) + os.sep
    for folder in (*(_PATHS[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
                   PACKAGE_DIRECTORY)
)  # fmt: skip


def stamp_of(path: Path) -> Stamp | None:
    """What changes when a file is saved; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class SourceFile:
    """A file with a function, and the user's modules that it imports, directly or not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._helpers: list[str] = []  # modules by name
        self._stamps: dict[str, Stamp | None] = {}  # of modules, those of before too, when they were last run

    def files(self) -> list[Path]:
        """The file and those of the modules it imports."""
        helpers = (_file_of(sys.modules.get(name)) for name in self._helpers)
        return [self.path, *(file for file in helpers if file is not None)]

    def load(self, name: str) -> Callable[..., Any]:
        """The function `name` of the file, run anew; modules whose files changed are run anew first."""
        names: dict[str, Any] = {"__name__": self.path.stem, "__file__": str(self.path)}
        with _importable(self.path.parent):
            # Of the file as it is now: it may import a module again that was saved while the file did not.
            needed = _helpers_of(_parse(self.path), "")
            # If one of them does not run, its next save is waited for.
            self._helpers = list(dict.fromkeys([*self._helpers, *needed]))
            with _restored_on_failure(self._helpers):
                self._run_changed(needed)
                self._helpers = _helpers_of(_run(self.path, names), "")
                self._stamps |= {helper: _stamp_of_module(helper) for helper in self._helpers}
        if not callable(names.get(name)):
            own = [key for key, value in names.items() if callable(value) and not key.startswith("_")]
            what, expected = f"`{self.path.name}` has no function `{name}`", ", ".join(own) or None
            raise GraphError(what, expected=None if expected is None else f"one of {expected}", help=RUNS_ON)
        return names[name]

    def _run_changed(self, helpers: list[str]) -> None:
        """Modules in the order in which they depend on each other; one that imports a changed one is run too."""
        changed: set[str] = set()
        for helper in helpers:
            module = sys.modules.get(helper)
            file = _file_of(module)
            if module is None or file is None or helper not in self._stamps:
                continue  # one that is new here was imported as it is
            imported = _imports(_parse(file), module.__package__ or "")
            if stamp_of(file) != self._stamps[helper] or changed & set(imported):
                changed.add(helper)
                _run(file, module.__dict__)  # in place: other modules that imported it see the new code


def _run(path: Path, names: dict[str, Any]) -> ast.Module:
    """Runs a file in a namespace. Errors name its line, and say that the last code keeps running."""
    tree = _parse(path)
    linecache.checkcache(str(path))
    try:
        exec(compile(tree, str(path), "exec"), names)
    except (Exception, SystemExit) as error:
        raise GraphError(f"`{path.name}` raised {type(error).__name__}: {error}", where=raised_at(error)) from error
    return tree


def _parse(path: Path) -> ast.Module:
    try:
        source = path.read_bytes()
    except OSError as error:
        raise GraphError(f"cannot read `{path.name}`: {error.strerror}", help=RUNS_ON) from error
    try:
        return ast.parse(decode_source(source), str(path))  # a byte order mark or a coding line says how
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
    """The source of a module that is the user's own, not Python's, a library's or ours."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py") or getattr(module, "__name__", "") == "__main__":
        return None
    return None if os.path.realpath(file).startswith(_NOT_THE_USERS) else Path(file)


def _stamp_of_module(name: str) -> Stamp | None:
    file = _file_of(sys.modules.get(name))
    return None if file is None else stamp_of(file)


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    """The modules that a file names in its import statements, as far as they are loaded."""
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
            yield from (module for end in range(1, len(parts) + 1) if (module := ".".join(parts[:end])) in sys.modules)


def _helpers_of(tree: ast.Module, package: str) -> list[str]:
    """The user's modules that a file imports, directly or not, each after those that it imports."""
    found: dict[str, None] = {}
    entered: set[str] = set()

    def visit(tree: ast.Module, package: str) -> None:
        for name in _imports(tree, package):
            module = sys.modules.get(name)
            file = _file_of(module)
            if name not in entered and module is not None and file is not None:
                entered.add(name)
                visit(_parse(file), module.__package__ or "")
                found[name] = None

    visit(tree, package)
    return list(found)


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Modules beside the file can be imported, as when Python runs the file."""
    entry = str(folder.resolve())
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        sys.path.remove(entry)


@contextmanager
def _restored_on_failure(helpers: list[str]) -> Iterator[None]:
    """Modules that were run anew are as they were before if the file, or one of them, does not run."""
    before = {name: dict(sys.modules[name].__dict__) for name in helpers if name in sys.modules}
    try:
        yield
    except BaseException:
        for name, names in before.items():
            module = sys.modules[name].__dict__
            module.clear()
            module.update(names)
        raise
