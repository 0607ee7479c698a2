"""The command `studio`: opens the page and waits until it is interrupted."""

from __future__ import annotations

import argparse
import sys

from livegrad.tools.report import Report
from livegrad.tools.studio.open_studio import studio


def open_page(arguments: argparse.Namespace) -> Report:
    """Opens the Studio."""
    opened = studio(
        arguments.what,
        open_browser=not arguments.no_browser,
        permission=arguments.permission,
        trust=arguments.trust,
        host=arguments.host,
        port=arguments.port,
    )
    print(f"The Studio: {opened.url}\nWhoever has this address may use it. Ctrl-C ends the Studio.", flush=True)
    try:
        opened.wait()
    except KeyboardInterrupt:
        print(file=sys.stderr)
    finally:
        opened.close()
    return Report({"closed": True})
