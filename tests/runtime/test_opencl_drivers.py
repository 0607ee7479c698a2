"""PoCL on processors that its LLVM does not support: users get a reason, and the setup installs another driver."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from livegrad.runtime import opencl

ZEN_3 = "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-znver3"
ZEN_4 = "OpenCL 3.0 PoCL HSTR: pthread-x86_64-pc-linux-gnu-znver4"
ZEN_5 = "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-generic"  # LLVM 14's name
INTEL = "OpenCL 3.1 (Build 0)"
SCRIPT = Path(__file__).parents[2] / "scripts" / "opencl_driver.py"


def device(version: str) -> SimpleNamespace:
    return SimpleNamespace(version=version, platform=SimpleNamespace(version="OpenCL 3.0 PoCL 3.0"))


def test_a_driver_that_is_known_to_abort_raises_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl.llvm, "get_host_cpu_features", lambda: {"avx512f": True})
    with pytest.warns(RuntimeWarning, match="identifies this processor as `znver3` and is known to abort"):
        opencl._warn_of_pocl_crash(device(ZEN_3))


@pytest.mark.parametrize(("version", "has_avx512"), [(ZEN_3, False), (ZEN_4, True)])
def test_a_driver_that_supports_the_processor_raises_no_warning(
    version: str, has_avx512: bool, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr(opencl.llvm, "get_host_cpu_features", lambda: {"avx512f": has_avx512})
    opencl._warn_of_pocl_crash(device(version))
    assert not recwarn.list


def test_a_driver_that_does_not_support_the_processor_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl, "_devices", lambda: [device(ZEN_5)])
    opencl.reason_for_no_opencl.cache_clear()
    try:
        reason = opencl.reason_for_no_opencl()
    finally:
        opencl.reason_for_no_opencl.cache_clear()
    assert reason == "OpenCL 3.0 PoCL 3.0 does not support this processor"
    assert [opencl._is_unknown_to_driver(device(version)) for version in (ZEN_3, ZEN_4, ZEN_5)] == [False, False, True]


@pytest.fixture
def script() -> Any:
    spec = importlib.util.spec_from_file_location("opencl_driver", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_supported_library_replaces_the_other(script: Any, tmp_path: Path) -> None:
    folder = tmp_path / ".libs" / "share" / "pocl"
    assert not script.replace_avx512_library(tmp_path)
    folder.mkdir(parents=True)
    (folder / "kernel-x86_64-unknown-linux-gnu-avx512.bc").write_bytes(b"avx512")
    (folder / "kernel-x86_64-unknown-linux-gnu-avx2.bc").write_bytes(b"avx2")
    assert script.replace_avx512_library(tmp_path)
    assert (folder / "kernel-x86_64-unknown-linux-gnu-avx512.bc").read_bytes() == b"avx2"


def test_another_driver_is_installed_only_where_pocl_has_no_name_for_the_processor(script: Any) -> None:
    assert script.needs_another_driver(f"{ZEN_5}\n")
    assert not script.needs_another_driver(f"{INTEL}\n{ZEN_5}\n")
    assert not script.needs_another_driver(f"{ZEN_3}\n")
