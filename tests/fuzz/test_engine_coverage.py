"""The table of what the random editor has covered."""

import json

from tests.fuzz.engine_coverage import main


def test_cells_that_were_met_too_seldom_are_named(tmp_path, capsys):
    counts = {"set|top|float": 250, "set|for|int": 100, "set|for|float": 99, "edits": 449, "interrupt|Fault|True": 3}
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"fuzz": {"counts": counts}}))
    assert main([str(path)]) == 1
    shown = capsys.readouterr().out
    assert "449 edits; 4 cells, 2 of them below 100" in shown
    rare = [line.split(maxsplit=1) for line in shown.splitlines() if " of " in line and " in " in line]
    assert rare == [["0", "set in top of int"], ["99", "set in for of float"]]
    assert main([str(path), "--least", "0"]) == 0
