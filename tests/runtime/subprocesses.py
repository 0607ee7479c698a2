"""Runs Python code in a subprocess with a separate cache directory."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import IO

START = """\
import os, signal, sys, threading, time
import numpy as np
import livegrad as lg
from livegrad import ops
"""


def _environment(cache: Path | str) -> dict[str, str]:
    return {**os.environ, "LIVEGRAD_CACHE_DIR": str(cache)}


def run_python(code: str, cache: Path | str, *, timeout: float = 60.0) -> str:
    """Runs the program and returns its output; a failure shows its errors."""
    command = [sys.executable, "-c", START + textwrap.dedent(code)]
    done = subprocess.run(command, env=_environment(cache), capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


def start_python(code: str, cache: Path | str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", START + textwrap.dedent(code)]
    return subprocess.Popen(command, env=_environment(cache), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def read_line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline().strip()
