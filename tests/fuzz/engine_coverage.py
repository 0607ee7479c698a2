"""`python -m tests.fuzz.engine_coverage FILES [--least 100]`: what the random editor of the live engine has covered.

FILES are what runs of `python -m tests.fuzz engine --json` have kept; they are added up. For each kind of edit there
is a table, region × kind of value; cells that were met less often than `--least` are named at the end, and the exit
status is 1 if there are any.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

# Every place that an edit can be at: `region_of` of `engine_editor`, and the graphs that are used several times.
REGIONS = (
    "top", "composite", "shared", "if", "if_else", "switch", "for", "while", "nested composite", "nested region",
)  # fmt: skip
Cell = tuple[str, str, str]  # a kind of edit, a region, a kind of value

_NUMBERS = ("bool", "f32", "f64", "float", "i64", "int")
_ARRAYS = ("array bool", "array f32", "array f64", "array i64")
_VALUES = (*_NUMBERS, *_ARRAYS)
_ELEMENTS = ("bool", "float32", "float64", "int64")
_FUNCTIONS = ("bool", "float", "int")
_BLOCKS = (*_FUNCTIONS, "choice", "group", "memory")
_REFUSED = (
    "a block", "a builtin", "a number for a name", "an input", "exposed", "foreign", "if_else", "no pin", "not dense",
    "ragged", "state", "switch", "text", "twice", "unfed",
)  # fmt: skip
_ADDED = ("composite", "if", "if_else", "switch", "for", "while")

# The kinds of value of each kind of edit; where there is no value, the kinds of blocks, or "-".
KINDS: dict[str, tuple[str, ...]] = {
    "set": (*_VALUES, "int for float"), "set default": (*_VALUES, "int for float"), "set again": _VALUES,
    "set carried": (*_VALUES, "int for float"), "set in branch": (*_FUNCTIONS, "int for float"),
    "set control": (*_FUNCTIONS, "int for float", "turns"), "bind control": ("bool", "int64"),
    "bind": _VALUES, "bind versioned": _VALUES, "touch": _ELEMENTS, "write": _ELEMENTS,
    "resize": _ARRAYS, "resize by owner": _ELEMENTS, "repair": _ARRAYS, "feature": ("float",),
    "add state": _VALUES, "replace state": _VALUES, "reset": _ELEMENTS, "state": _ELEMENTS,
    "add block": _FUNCTIONS, "add again": _FUNCTIONS, "edit": _FUNCTIONS, "edit pins": _FUNCTIONS, "keep": _FUNCTIONS,
    "connect": _BLOCKS, "remove": _BLOCKS, "expose": _BLOCKS, "disconnect": ("bound", "edge", "given"),
    **{f"add {kind}": ("-",) for kind in _ADDED}, **{f"refused {kind}": ("-",) for kind in _REFUSED},
}  # fmt: skip

_MADE = "it is refused when it is made, before it is anywhere"
_OUTERMOST = "the outermost graph has no pins"
_INSIDE = tuple(region for region in REGIONS if region != "top")
# Where a kind of edit cannot be, and why. What is not here has to be met.
CANNOT_BE: dict[str, tuple[tuple[str, ...], str]] = {
    "feature": (_INSIDE, "a feature is the engine's"),
    "expose": (("top",), _OUTERMOST),
    "refused exposed": (("top",), _OUTERMOST),
    **{f"refused {kind}": (_INSIDE, _MADE) for kind in ("if_else", "switch", "a builtin", "a number for a name")},
    "set in branch": (("top", "composite", "for", "while", "nested composite"), "it is no branch"),
    "resize by owner": (
        ("shared", "if", "if_else", "switch", "for", "while", "nested region"),
        "whether a body reads its memory in a frame is not known",
    ),
}


def could_be(edit: str, region: str) -> bool:
    """Whether an edit of this kind can be made there."""
    return edit not in CANNOT_BE or region not in CANNOT_BE[edit][0]


def cells_of(counts: Mapping[str, int]) -> tuple[dict[Cell, int], dict[Cell, int]]:
    """How often each cell of the table was met, those never met with 0; and what was met that is not in the table."""
    met = {(parts[0], parts[1], parts[2]): n for key, n in counts.items() if len(parts := key.split("|")) == 3}
    table = [
        (edit, region, kind) for edit in sorted(KINDS) for region in REGIONS if could_be(edit, region)
        for kind in sorted(KINDS[edit])
    ]  # fmt: skip
    odd = {cell: number for cell, number in met.items() if cell[1] in REGIONS and cell not in set(table)}
    return {cell: met.get(cell, 0) for cell in table}, odd


def tables(cells: Mapping[Cell, int]) -> Iterator[str]:
    """The lines of a table for each kind of edit."""
    for edit in dict.fromkeys(edit for edit, _, _ in cells):
        kinds = list(dict.fromkeys(kind for own, _, kind in cells if own == edit))
        regions = list(dict.fromkeys(region for own, region, _ in cells if own == edit))
        widths = [max(8, len(kind)) for kind in kinds]
        yield f"{edit:<18}" + "".join(f"  {kind:>{width}}" for kind, width in zip(kinds, widths, strict=True))
        for region in regions:
            numbers = zip(kinds, widths, strict=True)
            yield f"  {region:<16}" + "".join(f"  {cells[edit, region, kind]:>{width},}" for kind, width in numbers)
        if edit in CANNOT_BE:
            never, reason = CANNOT_BE[edit]
            yield f"  never in {', '.join(never)}: {reason}"
        yield ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.engine_coverage", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--least", type=int, default=100, help="how often each cell has to be met (default: 100)")
    asked = parser.parse_args(arguments)
    counts = Counter[str]()
    for file in asked.files:
        counts.update(json.loads(file.read_text("utf-8"))["fuzz"]["counts"])
    cells, odd = cells_of(counts)
    print("\n".join(tables(cells)))
    for (edit, region, kind), number in odd.items():
        print(f"not in the table, which names all that can be: {number} × {edit} in {region}, {kind}")
    pairs = Counter[tuple[str, str]]()
    for (edit, region, _), number in cells.items():
        pairs[edit, region] += number
    few = {pair: number for pair, number in pairs.items() if number < asked.least}
    print(f"{len(pairs):,} pairs of edit and region, {len(few):,} of them below {asked.least}, whatever the value")
    for (edit, region), number in few.items():
        print(f"  {number:>4}  {edit} in {region}")
    rare = {cell: number for cell, number in cells.items() if number < asked.least}
    print(f"{counts.get('edits', 0):,} edits; {len(cells):,} cells, {len(rare):,} of them below {asked.least}")
    for (edit, region, kind), number in rare.items():
        print(f"  {number:>4}  {edit} in {region} of {kind}")
    return 1 if rare else 0


if __name__ == "__main__":
    sys.exit(main())
