"""Opens the Studio of an installed livegrad, and reads its page. Run by `.ci/run` outside of the repository."""

from __future__ import annotations

from urllib.request import urlopen

import livegrad as lg


def main() -> None:
    """Fails unless the page and its script are there."""
    engine = lg.Engine()
    engine.add(lg.block(lambda x=1.0: x * 2.0, name="double"))
    with lg.studio(engine, open_browser=False) as studio:
        address = studio.url.partition("#")[0]
        with urlopen(address) as page:
            assert b"/studio.js" in page.read()
        with urlopen(f"{address}studio.js") as script:
            size = len(script.read())
    print(f"the Studio of {lg.__file__} serves its page; its script has {size:,} bytes")


if __name__ == "__main__":
    main()
