"""Lets the PoCL of the development environment work on processors that its LLVM 14 does not know.

PoCL 3.0, the newest with wheels, links its AVX-512 library wherever the processor has AVX-512, but generates code for
the processor's name as LLVM 14 knows it. It takes AMD's Zen 4 and 5 for a Zen 3, which has no AVX-512, and aborts:
"Cannot select", in `_Z9_cl_floorDv16_f`. Its AVX2 library is right for that name, so it takes the other's place.
Called by `environment.sh` after packages were installed.
"""

import importlib.util
import shutil
from pathlib import Path

import llvmlite.binding as llvm

_LIBRARY = "kernel-x86_64-unknown-linux-gnu-{}.bc"


def is_unknown_to_llvm_14() -> bool:
    """Whether this processor has AVX-512 and is AMD's: LLVM knows such ones from version 16 on."""
    return llvm.get_host_cpu_name().startswith("znver") and bool(llvm.get_host_cpu_features().get("avx512f"))


def mend(package: Path) -> bool:
    """Replaces the AVX-512 library of an installed PoCL by its AVX2 library; False where there is none."""
    folder = package / ".libs" / "share" / "pocl"
    unfit, fit = (folder / _LIBRARY.format(features) for features in ("avx512", "avx2"))
    if not (unfit.exists() and fit.exists()):
        return False
    shutil.copyfile(fit, unfit)
    return True


def main() -> None:
    spec = importlib.util.find_spec("pocl_binary_distribution")
    if spec is not None and spec.submodule_search_locations and is_unknown_to_llvm_14():
        mend(Path(spec.submodule_search_locations[0]))


if __name__ == "__main__":
    main()
