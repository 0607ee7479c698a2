"""The CPU as a target of the compiler."""

from __future__ import annotations

from livegrad.codegen.llvm.function_body import lacks_code
from livegrad.runtime.cpu.row_chains import rows_of_tile
from livegrad.schedule.target import Target

CPU = Target(
    "cpu",
    kernels_write_by_index=True,
    splits_long_columns=True,
    host_writes_views=True,
    binds_loop_bodies=True,
    fuses_siblings=True,
    rows_of_tile=rows_of_tile,
    lacks_code=lacks_code,
)
