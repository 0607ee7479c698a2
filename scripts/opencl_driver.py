"""Gives the development environment an OpenCL driver that works on this processor.

PoCL 3.0 is the newest with wheels. Its LLVM 14 does not know AMD's later processors:

- It takes Zen 4 for a Zen 3, which has no AVX-512, but links its AVX-512 library, and aborts: "Cannot select", in
  `_Z9_cl_floorDv16_f`. Its AVX2 library is right for that name, so it takes the other's place.
- It calls Zen 5 `generic`, which is not a name that it compiles for. Intel's run time for CPUs takes its place: it
  has wheels, and also runs on AMD's processors.

Called by `environment.sh` after packages were installed.
"""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm

_LIBRARY = "kernel-x86_64-unknown-linux-gnu-{}.bc"
_INTEL = ("intel-opencl-rt", "intel-cmplr-lib-rt")
_LIST_DEVICES = (
    "import pyopencl as cl; print(*[d.version for p in cl.get_platforms() for d in p.get_devices()], sep='\\n')"
)


def has_avx512_unknown_to_llvm_14() -> bool:
    """Whether this processor has AVX-512 and is AMD's: LLVM knows such ones from version 16 on."""
    return llvm.get_host_cpu_name().startswith("znver") and bool(llvm.get_host_cpu_features().get("avx512f"))


def replace_avx512_library(package: Path) -> bool:
    """Replaces the AVX-512 library of an installed PoCL by its AVX2 library; False where there is none."""
    folder = package / ".libs" / "share" / "pocl"
    unfit, fit = (folder / _LIBRARY.format(features) for features in ("avx512", "avx2"))
    if not (unfit.exists() and fit.exists()):
        return False
    shutil.copyfile(fit, unfit)
    return True


def needs_another_driver(devices: str) -> bool:
    """Whether PoCL is the only driver and has no name for this processor; `devices` has a line for each."""
    versions = devices.split("\n")
    return all("PoCL" in version and version.endswith("-generic") for version in versions if version)


def install_intel_driver(pyopencl: Path) -> None:
    """Installs Intel's run time and tells the loader inside the wheel of pyopencl about it."""
    installed = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *_INTEL], check=False)
    library = Path(sys.prefix, "lib", "libintelocl.so")
    if installed.returncode or not library.exists():
        print("no OpenCL driver works on this processor: OpenCL tests will be skipped", file=sys.stderr)
        return
    (pyopencl / ".libs" / "intel.icd").write_text(str(library))


def _folder_of(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def main() -> None:
    pocl, pyopencl = _folder_of("pocl_binary_distribution"), _folder_of("pyopencl")
    if pocl is None or pyopencl is None:
        return
    # A driver is never started here: it could take this process with it.
    devices = subprocess.run([sys.executable, "-c", _LIST_DEVICES], capture_output=True, text=True, check=False)
    if devices.returncode == 0 and needs_another_driver(devices.stdout):
        install_intel_driver(pyopencl)
    elif has_avx512_unknown_to_llvm_14():
        replace_avx512_library(pocl)


if __name__ == "__main__":
    main()
