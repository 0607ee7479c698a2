"""`python -m livegrad COMMAND`: the `livegrad` command, for the Python that runs it."""

from __future__ import annotations

import sys

from livegrad.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
