"""Steps that run as library calls on the device: cuBLAS, cuDNN, cuSOLVER, cuFFT, and hand-written kernels.

`serialised_device_plan.py` looks up the call of a step, which is captured into the graph. If a library is missing or
does not support the step, the host runs it.
"""

from __future__ import annotations

from collections.abc import Callable

from livegrad.ir.op import Op
from livegrad.ops.assignment import assign
from livegrad.ops.convolution import convolve
from livegrad.ops.decompositions import cholesky, qr
from livegrad.ops.fourier import fft, irfft, rfft
from livegrad.ops.indexing import scatter_add
from livegrad.ops.linalg import matmul
from livegrad.ops.solving import det, inv, slogdet, solve, triangular_solve
from livegrad.ops.sorting import argsort, searchsorted, sort
from livegrad.ops.spectra import eigh, eigvalsh, svd, svdvals
from livegrad.runtime.cuda.libraries.cublas import matmul_call
from livegrad.runtime.cuda.libraries.cufft import transform_call
from livegrad.runtime.cuda.libraries.device_convolution import convolution_call
from livegrad.runtime.cuda.libraries.device_factorisations import factorisation_call
from livegrad.runtime.cuda.libraries.device_linalg import linalg_call
from livegrad.runtime.cuda.libraries.device_scatter import scatter_call
from livegrad.runtime.cuda.libraries.device_sorting import search_call, sort_call
from livegrad.runtime.cuda.libraries.library_call import LibraryCall
from livegrad.runtime.cuda.libraries.library_convolution import library_convolution_call
from livegrad.runtime.cuda.libraries.solver_calls import solver_call
from livegrad.schedule.plan import HostStep


def _first_of(*choices: Callable[[HostStep], LibraryCall | None]) -> Callable[[HostStep], LibraryCall | None]:
    """The first of several calls that supports a step."""
    return lambda step: next((call for choose in choices if (call := choose(step)) is not None), None)


LIBRARY_CALLS: dict[Op, Callable[[HostStep], LibraryCall | None]] = {
    matmul: matmul_call,
    convolve: _first_of(library_convolution_call, convolution_call),
    scatter_add: scatter_call,
    assign: scatter_call,
    **dict.fromkeys((cholesky, inv, solve, triangular_solve), _first_of(solver_call, linalg_call)),
    **dict.fromkeys((det, slogdet), linalg_call),
    **dict.fromkeys((eigh, eigvalsh), _first_of(solver_call, factorisation_call)),
    **dict.fromkeys((qr, svd, svdvals), factorisation_call),
    fft: transform_call,
    rfft: transform_call,
    irfft: transform_call,
    sort: sort_call,
    argsort: sort_call,
    searchsorted: search_call,
}

__all__ = ["LIBRARY_CALLS", "LibraryCall"]
