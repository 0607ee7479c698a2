"""`import livegrad` is fast: it loads the value IR and its ops; all other names load on first use."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import livegrad as lg
from livegrad.frontend.differentiable import annotations
from livegrad.public_names import GROUPS, names_of
from livegrad.tensors import namespace

STUB_HEAD = '''"""What type checkers read in place of `__init__.py`: every public name, imported from where it is.

Made from the tables in `public_names.py`; `./test --update-ir tests/test_import.py` writes it again.
"""
# ruff: noqa: I001, RUF022

'''


def modules_after(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after some code."""
    shown = f"import sys\n{code}\nprint(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True).stdout.split())


def layers(loaded: set[str]) -> set[str]:
    return {name.split(".")[1] for name in loaded if name.startswith("livegrad.")}


def test_import_loads_the_value_ir_and_its_ops_alone() -> None:
    loaded = modules_after("import livegrad")
    assert layers(loaded) == {"diagnostics", "ir", "ops", "public_names", "state"}
    assert not {"llvmlite", "pyopencl", "cuda", "asyncio", "multiprocessing"} & loaded
    assert sum(name.startswith("livegrad") for name in loaded) <= 64


def test_tensors_load_neither_parts_nor_captured_functions() -> None:
    loaded = modules_after("import livegrad as lg\nlg.grad(lambda x: lg.sum(x * x))(lg.asarray([1.0, 2.0])).numpy()")
    others = {"livegrad." + name for name in ("frontend", "live", "contexts", "implicit", "tools")}
    assert not {"pyopencl", *others} & loaded


def test_an_engine_on_the_cpu_loads_no_library_of_a_gpu() -> None:
    loaded = modules_after("import livegrad as lg\nlg.Engine().step()")
    assert not {"cuda.bindings", "livegrad.runtime.cuda", "livegrad.live.cuda", "pyopencl"} & loaded


def test_the_command_line_loads_what_a_command_needs_when_it_runs() -> None:
    loaded = modules_after("from livegrad.tools import cli\ntry: cli.main(['mesh', '--help'])\nexcept SystemExit: pass")
    assert layers(loaded) == {"diagnostics", "ir", "ops", "public_names", "state", "tools"}


def test_listing_the_names_loads_nothing() -> None:
    loaded = modules_after("import livegrad\nassert {'Tensor', 'Engine', 'load_3mf'} <= {*dir(livegrad)}")
    assert layers(loaded) == {"diagnostics", "ir", "ops", "public_names", "state"}


def test_every_name_of_the_table_is_where_it_says() -> None:
    assert [name for name in lg.__all__ if getattr(lg, name) is None] == ["newaxis"]


def test_the_namespace_of_tensors_is_listed_in_full() -> None:
    assert {*namespace.__all__} <= {*lg.__all__}
    assert len(lg.__all__) == len({*lg.__all__})


def test_captured_code_knows_functions_on_tensors(tmp_path: Path) -> None:
    (tmp_path / "fresh.py").write_text(
        "import livegrad as lg\n\n@lg.function\ndef f(x: float) -> float:\n    return lg.exp(x)\n\n"
        "assert f(0.0) == 1.0\n"
    )
    subprocess.run([sys.executable, tmp_path / "fresh.py"], check=True)


def test_a_wrong_name_is_an_error_that_python_can_correct() -> None:
    with pytest.raises(AttributeError, match="module 'livegrad' has no attribute 'Tenzor'") as error:
        lg.Tenzor  # type: ignore[attr-defined]
    assert error.value.name == "Tenzor"
    assert "Tensor" in dir(error.value.obj)


def test_star_import_brings_every_name() -> None:
    names: dict[str, object] = {}
    exec("from livegrad import *", names)
    assert {*lg.__all__} <= {*names}


def test_classes_and_functions_are_pickled_by_where_they_are() -> None:
    for name in ("Tensor", "Engine", "load_3mf", "f32", "grad"):
        value = getattr(lg, name)
        assert pickle.loads(pickle.dumps(value)) is value


@pytest.mark.parametrize("group", ["", *GROUPS])
def test_type_checkers_see_every_name(group: str, check_golden: Callable[[Path, str], None]) -> None:
    check_golden(Path(lg.__file__).parent / group / "__init__.pyi", stub(group))


def stub(group: str) -> str:
    """A table as imports. Names of annotations come from the module that has classes for type checkers."""
    by_place: dict[str, list[str]] = {}
    for public, (place, own) in names_of(group).items():
        place = annotations.__name__ if hasattr(annotations, public) else place
        by_place.setdefault(place, []).append(f"    {own}," if own == public else f"    {own} as {public},")
    blocks = ["\n".join([f"from {place} import (", *lines, ")"]) for place, lines in by_place.items()]
    names = "\n".join(["__all__ = [", *[f'    "{name}",' for name in names_of(group)], "]"])
    version = "" if group else "\n__version__: str\n"
    return STUB_HEAD + "\n".join(blocks) + f"\n{version}\n{names}\n"


@pytest.mark.parametrize("group", GROUPS)
def test_groups_list_their_names_and_say_where_others_are(group: str) -> None:
    module = getattr(lg, group)
    assert {*module.__all__} <= {*dir(module)}
    for name in module.__all__:
        assert getattr(module, name) is not None
        if name not in lg.__all__:
            with pytest.raises(AttributeError, match=f"has no attribute '{name}'; write lg.{group}.{name}"):
                getattr(lg, name)
    with pytest.raises(AttributeError, match="has no attribute 'Tensor'"):
        module.Tensor
