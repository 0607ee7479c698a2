"""The table of what the random editor has covered."""

import json

from tests.fuzz import engine_coverage
from tests.fuzz.engine_coverage import KINDS, REGIONS, cells_of, main


def test_cells_that_were_met_too_seldom_are_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(engine_coverage, "KINDS", {"feature": ("float",), "set again": ("float", "int")})
    counts = {f"set again|{region}|{kind}": 100 for region in REGIONS for kind in ("float", "int")}
    counts |= {"set again|for|float": 99, "feature|top|float": 250, "edits": 449, "interrupt|Fault|True": 3}
    del counts["set again|top|int"]
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"fuzz": {"counts": counts}}))
    assert main([str(path)]) == 1
    shown = capsys.readouterr().out
    assert "449 edits; 21 cells, 2 of them below 100" in shown
    rare = [line.split(maxsplit=1) for line in shown.splitlines() if " of " in line and " in " in line]
    assert rare == [["0", "set again in top of int"], ["99", "set again in for of float"]]
    assert main([str(path), "--least", "0"]) == 0


def test_what_cannot_be_is_not_in_the_table_and_what_can_be_is():
    cells, odd = cells_of({"feature|for|float": 1, "feature|top|float": 2})
    assert odd == {("feature", "for", "float"): 1}
    assert cells["feature", "top", "float"] == 2
    assert ("feature", "for", "float") not in cells
    assert {kind for edit, region, kind in cells if (edit, region) == ("touch", "while")} == set(KINDS["touch"])
