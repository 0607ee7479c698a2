"""The hook of the wheel: builds the page of the Studio, which the package contains.

An editable installation has no hook to wait for: `./run` and `./test` build the page.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from scripts.build_studio import build


class WheelHook(BuildHookInterface[Any]):
    """Builds the page before the files of a wheel are collected."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatch."""
        if version != "editable":
            build()
