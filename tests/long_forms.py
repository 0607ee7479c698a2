"""Whether tests run in their long forms, with the sizes that the documentation speaks of: `./test --long` does."""

import os

LONG = bool(os.environ.get("LIVEGRAD_LONG_TESTS"))
