"""Finds the fuzzers of this folder without importing them: what they need may not be installed in this interpreter."""

import ast
import importlib.util
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
DEFAULT_SHORT = 20


@dataclass(frozen=True)
class Fuzzer:
    """A module with `run_one`, and the constants it states."""

    name: str
    needs: tuple[str, ...]
    short: int

    @property
    def missing(self) -> tuple[str, ...]:
        """What it needs and this interpreter does not have."""
        return tuple(module for module in self.needs if importlib.util.find_spec(module) is None)

    def interpreter(self, own: str) -> str | None:
        """The Python that can run it: this one, that of the peers, or None."""
        if not self.missing:
            return own
        peers = ROOT / ".venv-peers" / "bin" / "python"
        return str(peers) if peers.exists() else None


def _constants(tree: ast.Module) -> dict[str, object]:
    found: dict[str, object] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            if name in ("NEEDS", "SHORT"):
                found[name] = ast.literal_eval(statement.value)
    return found


def find_fuzzers() -> dict[str, Fuzzer]:
    """All fuzzers by name."""
    found: dict[str, Fuzzer] = {}
    for path in sorted(FOLDER.glob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "run_one" for node in tree.body):
            stated = _constants(tree)
            needs, short = stated.get("NEEDS", ()), stated.get("SHORT", DEFAULT_SHORT)
            assert isinstance(needs, tuple), f"NEEDS of {path.name} is not a tuple"
            assert isinstance(short, int), f"SHORT of {path.name} is not an integer"
            found[path.stem] = Fuzzer(path.stem, needs, short)
    return found
