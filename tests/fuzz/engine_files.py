"""Random saves of watched files under a live engine: what runs is the last code that was right, and the rest is told.

`run_one(seed)` is one session: files and their helper are saved right and wrong, in other encodings, removed, taken out
of the engine and put back, with frames between. The model is a few numbers: what the last good save computes.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import livegrad as lg

SHORT = 6
SAVES = 25

WRONG: dict[str, bytes] = {
    "no Python": b"def shade(x=2.0)\n",
    "not UTF-8": b"def shade(x=2.0):\n    return x  # \xff\n",
    "unknown coding": b"# coding: no-such-coding\ndef shade(x=2.0):\n    return x\n",
    "raises": b"raise ValueError('no')\n",
    "exits": b"import sys\nsys.exit(1)\n",
    "no function": b"def other(x=2.0):\n    return x\n",
}

_STYLES = {  # how the file imports the module, and how it names the number
    "from {helper} import OFFSET\n": "    return x * {factor} + OFFSET\n",
    "import {helper} as helper\n": "    return x * {factor} + helper.OFFSET\n",
    "": "    from {helper} import OFFSET\n    return x * {factor} + OFFSET\n",
}
_ENDS = ("", "import sys\nsys.path.pop(0)\n")


def run_one(seed: int, *, saves: int = SAVES) -> Mapping[str, int]:
    """One session; raises AssertionError where values or problems are not those of the files."""
    modules = set(sys.modules)
    with tempfile.TemporaryDirectory() as folder:
        session = _Session(Path(folder), random.Random(seed), f"helper_{seed}_of_a_watched_file")
        sys.path.append(folder)  # functions import while they are traced
        try:
            session.start()
            for _ in range(saves):
                session.save()
                if session.chance.random() < 0.7:
                    session.frame()
            session.frame()
        except (Exception, SystemExit) as error:
            lines = "\n  ".join(session.log)
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}\n  {lines}") from error
        finally:
            session.engine.close()
            sys.path[:] = [entry for entry in sys.path if entry is not folder]
            for name in set(sys.modules) - modules:
                if (getattr(sys.modules[name], "__file__", None) or "").startswith(folder):
                    del sys.modules[name]
    return {**session.counts, "edits": saves}


class _Session:
    """An engine with one watched block, which reads a number of a module beside its file."""

    def __init__(self, folder: Path, chance: random.Random, helper: str) -> None:
        self.chance, self.log, self.counts = chance, list[str](), Counter[str]()
        self.file, self.helper = folder / "shade.py", folder / f"{helper}.py"
        self.saved = self.runs = (2.0, 0.0)  # factor and offset: of the files, and of what runs
        self.wrong, self.broken_helper = "", ""
        self._saves = 0
        self.engine = lg.Engine()
        self.block: Any = None

    def start(self) -> None:
        """The first files, which are right."""
        self._write(self.helper, b"OFFSET = 0.0\n")
        self._write_factor(2.0)
        self.block = lg.live.watch(self.engine, self.file, "shade")
        self.engine.step(), self.engine.step()  # the first one imports what the function does

    def _write(self, path: Path, text: bytes) -> None:
        """Another size each time: a file system may not tell two saves apart by their times."""
        self._saves += 1
        path.write_bytes(text + b"#" * self._saves + b"\n")

    def _write_factor(self, factor: float) -> None:
        imports, result = self.chance.choice(list(_STYLES.items()))
        body = f"{imports}\n\ndef shade(x=3.0):\n{result}".format(helper=self.helper.stem, factor=factor)
        body += self.chance.choice(_ENDS)
        kind = self.chance.choice(("utf-8", "utf-8-sig", "latin-1"))
        head = "# coding: latin-1\n# \xe9\n" if kind == "latin-1" else ""
        self._write(self.file, (head + body).encode(kind))

    def save(self) -> None:
        """One save of a file, or an edit of the engine."""
        kind = self.chance.choice(
            ("right", "right", "wrong", "helper", "helper", "wrong helper", "again", "out and in", "watch")
        )
        factor, offset = self.saved
        if kind == "right":
            self.saved, self.wrong = (float(self.chance.randrange(1, 50)), offset), ""
            self._write_factor(self.saved[0])
        elif kind == "wrong":
            self.wrong = self.chance.choice(list(WRONG))
            self._write(self.file, WRONG[self.wrong])
        elif kind == "helper":
            self.saved, self.broken_helper = (factor, float(self.chance.randrange(50))), ""
            self._write(self.helper, f"OFFSET = {self.saved[1]}\n".encode())
        elif kind == "wrong helper":
            self.broken_helper = "raises"
            self._write(self.helper, b"OFFSET = 1 / 0\n")
        elif kind == "out and in":
            self._move()
        elif kind == "watch":
            self._watch()
        self.counts[f"save|{kind}"] += 1
        self.log.append(f"{kind} {self.wrong} {self.broken_helper} {self.saved}")

    def _move(self) -> None:
        """Takes the block out and puts it in again: at the top, or into a composite."""
        self.block.home.remove(self.block)
        if self.chance.random() < 0.7:
            self.engine.step()
        if self.chance.random() < 0.5:
            self.engine.add(self.block)
            return
        composite = lg.Composite(f"composite {self._saves}")
        if self.chance.random() < 0.5:
            self.engine.add(composite)
        composite.graph.add(self.block)
        if composite.home is None:
            self.engine.add(composite)
        self._saves += 1

    def _watch(self) -> None:
        """Another block of the same file: it has the code of now, or there is none."""
        self._saves += 1
        try:
            block = lg.live.watch(self.engine, self.file, "shade", name=f"shade {self._saves}")
        except lg.LivegradError:
            assert self.wrong or self.broken_helper
            return
        assert not self.wrong
        assert not self.broken_helper
        self.block.home.remove(self.block)
        self.block, self.runs = block, self.saved

    def frame(self) -> None:
        """One frame, and the comparison."""
        frame = self.engine.step()
        wrong = bool(self.wrong or self.broken_helper)
        if not wrong:
            self.runs = self.saved
        self.log.append("step")
        assert frame.ok != wrong, f"problems {[str(one) for one in frame.problems]}, and the files are wrong: {wrong}"
        assert bool(self.block.debug.errors) == wrong, f"errors {self.block.debug.errors}"
        assert all(one.block is self.block for one in frame.problems)
        assert [watch.block for watch in self.engine._journal.watches] == [self.block], "other blocks are followed"
        found, right = float(self.engine.read(self.block)), self.runs[0] * 3.0 + self.runs[1]
        assert found == right, f"read {found}, right {right}"
