"""The examples of docs/functions.md run and give the results in their comments."""

import re
from pathlib import Path
from typing import Any

import livegrad as lg

DOCUMENT = Path(__file__).parents[3] / "docs" / "functions.md"


def test_the_examples_of_the_document():
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {"lg": lg, "__name__": "document"}
    for block in blocks:
        lg.run_source(block, names)
    assert abs(names["shade"](names["m"], names["n"], names["light"]) - 0.96) < 1e-6
    dm, dn, nothing = lg.bwd_diff(names["shade"])(names["m"], names["n"], names["light"], 1.0)
    assert nothing is None
    assert (dm.roughness, dn.shape) == (0.0, (3,))
    results = dict(re.findall(r"^(lg\.bwd_diff\(cost\).*?)\s+# (.*)$", "\n".join(blocks), re.MULTILINE))
    assert len(results) == 2
    for call, expected in results.items():
        assert repr(eval(call, names)) == expected
