"""Whether tests run in their long forms, with the sizes that the documentation mentions: `./test --long`."""

import os

LONG = bool(os.environ.get("LIVEGRAD_LONG_TESTS"))
