"""PoCL on processors that its LLVM does not know: users are warned, and the development environment is mended."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

from livegrad.runtime import opencl

ZEN_3 = "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-znver3"
ZEN_4 = "OpenCL 3.0 PoCL HSTR: pthread-x86_64-pc-linux-gnu-znver4"
SCRIPT = Path(__file__).parents[2] / "scripts" / "mend_pocl.py"


def device(version: str) -> SimpleNamespace:
    return SimpleNamespace(version=version, platform=SimpleNamespace(version="OpenCL 3.0 PoCL 3.0"))


def test_a_driver_that_is_known_to_abort_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl.llvm, "get_host_cpu_features", lambda: {"avx512f": True})
    with pytest.warns(RuntimeWarning, match="identifies this processor as `znver3` and is known to abort"):
        opencl._warn_of_known_crash(device(ZEN_3))


@pytest.mark.parametrize(("version", "has_avx512"), [(ZEN_3, False), (ZEN_4, True)])
def test_a_driver_that_knows_the_processor_is_not(
    version: str, has_avx512: bool, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr(opencl.llvm, "get_host_cpu_features", lambda: {"avx512f": has_avx512})
    opencl._warn_of_known_crash(device(version))
    assert not recwarn.list


def test_the_library_that_fits_takes_the_place_of_the_other(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("mend_pocl", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    mend_pocl = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mend_pocl)
    folder = tmp_path / ".libs" / "share" / "pocl"
    assert not mend_pocl.mend(tmp_path)
    folder.mkdir(parents=True)
    (folder / "kernel-x86_64-unknown-linux-gnu-avx512.bc").write_bytes(b"avx512")
    (folder / "kernel-x86_64-unknown-linux-gnu-avx2.bc").write_bytes(b"avx2")
    assert mend_pocl.mend(tmp_path)
    assert (folder / "kernel-x86_64-unknown-linux-gnu-avx512.bc").read_bytes() == b"avx2"
