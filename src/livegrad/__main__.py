"""`python -m livegrad COMMAND`: runs the `livegrad` command with this Python interpreter."""

from __future__ import annotations

import sys

from livegrad.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
