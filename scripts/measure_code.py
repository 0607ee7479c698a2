"""`python -m scripts.measure_code [--json]`: the size of the code, and signs that its parts are mixed up.

Signs, not targets: a file that only one other imports may well deserve to be one, and a name may mean the same thing in
two folders. What grows without a reason is worth a look. `--names` lists what was counted.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import statistics
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import livegrad as lg

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "livegrad"
SHORT_FILE = 60  # lines

_NO_TOKENS = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip
_MUTABLE = {
    "dict", "list", "set", "OrderedDict", "defaultdict", "deque", "Counter", "WeakKeyDictionary", "WeakValueDictionary",
    "WeakSet", "Lock", "RLock", "Condition", "Event", "local", "count", "SimpleQueue", "ThreadPoolExecutor",
}  # fmt: skip
_FILLING = {
    "add", "append", "clear", "discard", "extend", "insert", "move_to_end", "pop", "popitem", "popleft", "remove",
    "setdefault", "update",
}  # fmt: skip
_MAKING = {"__init__", "__new__", "__post_init__", "__set_name__"}


@dataclass(frozen=True)
class Module:
    """One source file."""

    name: str  # as it is imported
    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def lines(self) -> int:
        return self.text.count("\n")

    @cached_property
    def tokens(self) -> list[tokenize.TokenInfo]:
        """Without comments and line ends."""
        found = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return [token for token in found if token.type not in _NO_TOKENS]

    @cached_property
    def code_lines(self) -> int:
        """Lines with code on them: docstrings are not."""
        strings = {line for node in _docstrings(self.tree) for line in range(node.lineno, (node.end_lineno or 0) + 1)}
        return len({token.start[0] for token in self.tokens} - strings)

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _docstrings(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            first = node.body[0]
            assert isinstance(first, ast.Expr)
            yield first.value


def read_modules(package: Path = PACKAGE) -> list[Module]:
    """All source files of a package."""
    found = []
    for path in sorted(package.rglob("*.py")):
        parts = [package.name, *path.relative_to(package).with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Module(name, path, path.read_text("utf-8")))
    return found


# --- what is counted --------------------------------------------------------------------------------------------------


def imports_of(module: Module, names: set[str]) -> set[str]:
    """The modules of the package that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (inner & names) or {node.module}
    return (found & names) - {module.name}


def single_importers(modules: Sequence[Module]) -> list[str]:
    """Files that exactly one other file imports."""
    names = {module.name for module in modules}
    importers: Counter[str] = Counter()
    for module in modules:
        importers.update(imports_of(module, names))
    return sorted(name for name, number in importers.items() if number == 1)


def module_state(modules: Iterable[Module]) -> list[str]:
    """Module-level names whose value changes: tables, caches, locks, counters, objects that change themselves.

    What `livegrad.state` owns is not among them, and neither are memos of pure functions, which nobody can see; but a
    memo of a function without parameters is a thing that is made once for the process.
    """
    modules = list(modules)
    classes: defaultdict[str, list[bool]] = defaultdict(list)
    private: defaultdict[str, set[str]] = defaultdict(set)
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and node.name != "Owned":
                changes = _is_changing(node)
                if not node.name.startswith("_"):
                    classes[node.name].append(changes)
                elif changes:
                    private[module.name].add(node.name)
    public = _MUTABLE | {name for name, found in classes.items() if all(found)}
    return [
        f"{module.name}.{name}"
        for module in modules
        for name in sorted(_state_names(module.tree, public | private[module.name]))
    ]


def _state_names(tree: ast.Module, changing: set[str]) -> set[str]:
    values = dict(_assigned(tree))
    names = {name for name, value in values.items() if _is_mutable(value, changing)}
    names |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and _is_made_once(node)}
    for definition in tree.body:
        if isinstance(definition, ast.FunctionDef | ast.ClassDef):
            for node in ast.walk(definition):
                written = _written_name(node)
                if isinstance(values.get(written), ast.Dict | ast.List | ast.Set | ast.Call):
                    names.add(written)
                if isinstance(node, ast.Global):
                    names.update(node.names)
    return names


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """The names that a module assigns at its top level, with their values."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value


def _is_mutable(value: ast.expr, changing: set[str]) -> bool:
    """Whether a value begins empty, to be filled, or is an object that changes."""
    if isinstance(value, ast.List | ast.Set):
        return not value.elts
    if isinstance(value, ast.Dict):
        return not value.keys
    if isinstance(value, ast.Call):
        name = _called_name(value)
        return name in changing and not (value.args and name in ("dict", "list", "set"))
    return False


def _called_name(call: ast.Call) -> str:
    called = call.func.value if isinstance(call.func, ast.Subscript) else call.func
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def _is_changing(node: ast.ClassDef) -> bool:
    """Whether methods, but for those that make an object, assign to attributes of `self` or fill them."""
    bases = {_called_name(ast.Call(base, [], [])) for base in node.bases}
    methods = [own for own in node.body if isinstance(own, ast.FunctionDef) and own.name not in _MAKING]
    return bool(bases & _MUTABLE) or any(_changes_self(own) for method in methods for own in ast.walk(method))


def _changes_self(node: ast.AST) -> bool:
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            every = [own for target in targets for own in (target.elts if isinstance(target, ast.Tuple) else [target])]
            return any(_is_of_self(own) for own in every)
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            return _is_of_self(target)
        case ast.Call(func=ast.Attribute(value=filled, attr=method)):
            return method in _FILLING and _is_of_self(filled)
        case ast.Call(func=ast.Name(id="setattr"), args=[ast.Name(id="self"), *_]):
            return True
    return False


def _is_of_self(target: ast.expr) -> bool:
    while isinstance(target, ast.Subscript):
        target = target.value
    return isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"


def _written_name(node: ast.AST) -> str:
    """The name of what a statement changes: by an index, by an attribute, or by a method that fills it."""
    match node:
        case ast.Assign(targets=[ast.Subscript(value=target) | ast.Attribute(value=target)]):
            pass
        case ast.AugAssign(target=ast.Attribute(value=target)):
            pass
        case ast.Call(func=ast.Attribute(value=target, attr=method)) if method in _FILLING:
            pass
        case _:
            return ""
    while isinstance(target, ast.Subscript):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""


def _is_made_once(node: ast.FunctionDef) -> bool:
    """Whether a function without parameters keeps its result."""
    decorators = {ast.unparse(own).partition("(")[0].rpartition(".")[2] for own in node.decorator_list}
    return bool(decorators & {"cache", "lru_cache"}) and not node.args.args


def hooks(modules: Iterable[Module]) -> list[str]:
    """Calls through a list of one, and imports by a name in a string: ways round the order of the layers."""
    found = []
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and (name := _hook_name(node.func)) is not None:
                found.append(f"{module.name}:{node.lineno} {name}")
    return found


def _hook_name(called: ast.expr) -> str | None:
    match called:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=0)) if name.isupper():
            return f"{name}[0](…)"
        case ast.Attribute(attr="import_module") | ast.Name(id="import_module"):
            return "import_module"
    return None


def repeated(names: Iterable[str], least: int = 3) -> dict[str, int]:
    """Names that come up several times, the most frequent first."""
    return {name: number for name, number in Counter(names).most_common() if number >= least}


def _file_names(modules: Iterable[Module]) -> list[str]:
    return [module.path.stem for module in modules if module.path.stem != "__init__"]


def _class_names(modules: Iterable[Module]) -> list[str]:
    nodes = (node for module in modules for node in module.tree.body)
    return [node.name for node in nodes if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


# --- what a call touches ----------------------------------------------------------------------------------------------


class _Touched:
    """The files and functions of the package that run, and how often a call leads into another folder."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.functions: set[tuple[str, int]] = set()
        self.changes_of_layer = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        is_import = frame.f_code.co_name == "<module>"
        if event != "call" or is_import or not frame.f_code.co_filename.startswith(str(PACKAGE)):
            return
        name = frame.f_code.co_filename
        self.files[name] += 1
        self.functions.add((name, frame.f_code.co_firstlineno))
        outer = frame.f_back.f_code.co_filename if frame.f_back is not None else ""
        self.changes_of_layer += outer.startswith(str(PACKAGE)) and _layer(outer) != _layer(name)

    @property
    def summary(self) -> dict[str, int]:
        return {
            "files": len(self.files), "functions": len(self.functions), "changes of layer": self.changes_of_layer,
        }  # fmt: skip


def _layer(file: str) -> str:
    return Path(file).relative_to(PACKAGE).parts[0]


def touched_by_gradient() -> dict[str, dict[str, int]]:
    """What the first and a later call of `jit(grad(f))` touch."""
    x = lg.asarray(np.linspace(0.0, 1.0, 8, dtype=np.float32))
    function = lg.jit(lg.grad(lambda x: lg.sum(lg.sin(x) * lg.exp(x))))
    found = {}
    for name in ("first call", "later call"):
        touched = _Touched()
        sys.setprofile(touched)
        try:
            function(x).numpy()
        finally:
            sys.setprofile(None)
        found[name] = touched.summary
    return found


# --- report -----------------------------------------------------------------------------------------------------------


def measure(modules: Sequence[Module]) -> tuple[dict[str, Any], Mapping[str, Iterable[str]]]:
    """The numbers, and the names behind some of them."""
    lengths = [(node.end_lineno or 0) - node.lineno + 1 for module in modules for node in module.functions]
    by_folder: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for module in modules:
        parts = module.path.relative_to(PACKAGE).parts
        row = by_folder[parts[0] if len(parts) > 1 else "."]
        for column, number in enumerate((1, module.code_lines, len(module.tokens))):
            row[column] += number
    names = {
        "imported once": single_importers(modules),
        "module-level state": module_state(modules),
        "hooks": hooks(modules),
    }
    numbers = {
        "files": len(modules), "lines": sum(module.lines for module in modules),
        "lines of code": sum(module.code_lines for module in modules),
        "tokens": sum(len(module.tokens) for module in modules), "functions": len(lengths),
        "median lines of a function": statistics.median(lengths), "longest function": max(lengths),
        f"files under {SHORT_FILE} lines": sum(module.lines < SHORT_FILE for module in modules),
        **{name: len(list(found)) for name, found in names.items()},
        "file names that repeat": repeated(_file_names(modules)),
        "class names that repeat": repeated(_class_names(modules), 2),
        "files, lines of code, tokens by folder": dict(sorted(by_folder.items())),
    }  # fmt: skip
    return numbers, names


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.measure_code", description=__doc__)
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--names", action="store_true", help="list what was counted")
    asked = parser.parse_args(arguments)
    numbers, names = measure(read_modules())
    numbers["jit(grad(f))"] = touched_by_gradient()
    if asked.json:
        print(json.dumps(numbers, indent=2))
        return 0
    for name, value in numbers.items():
        if isinstance(value, dict):
            print(f"{name}:", *(f"  {key:<16} {number}" for key, number in value.items()), sep="\n")
        else:
            print(f"{name}: {value:,}")
    if asked.names:
        for name, found in names.items():
            print(f"\n{name}:", *(f"  {one}" for one in found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
