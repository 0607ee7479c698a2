"""Numba with `njit(parallel=True)`, a contender of its own in the loops suite."""
# pyright: reportMissingImports=false

import numba

from benchmarks.peers import numba_loops

VERSION = numba.__version__
BUILDERS = numba_loops.PARALLEL
