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


def cells_of(counts: Mapping[str, int]) -> dict[Cell, int]:
    """How often each cell was met, by edit, region and kind; those never met are there with 0.

    A cell that could be is one whose edit was met with that kind somewhere, and in that region with some kind.
    """
    met = {(parts[0], parts[1], parts[2]): n for key, n in counts.items() if len(parts := key.split("|")) == 3}
    cells: dict[Cell, int] = {}
    for edit in sorted({edit for edit, region, _ in met if region in REGIONS}):
        own = [cell for cell in met if cell[0] == edit]
        kinds = sorted({kind for _, _, kind in own})
        regions = [region for region in REGIONS if any(cell[1] == region for cell in own)]
        cells |= {(edit, region, kind): met.get((edit, region, kind), 0) for region in regions for kind in kinds}
    return cells


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
        if never := [region for region in REGIONS if region not in regions]:
            yield f"  never in {', '.join(never)}"
        yield ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.engine_coverage", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--least", type=int, default=100, help="how often each cell has to be met (default: 100)")
    asked = parser.parse_args(arguments)
    counts = Counter[str]()
    for file in asked.files:
        counts.update(json.loads(file.read_text("utf-8"))["fuzz"]["counts"])
    cells = cells_of(counts)
    print("\n".join(tables(cells)))
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
