"""Capture: sources of functions, the names that they use, and recompilation after changes."""

import linecache
import subprocess
import sys
import textwrap
import types
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.frontend.function import python_source as source_module

FACTOR = 2.0
TABLE = np.array([1.0, 2.0, 3.0])


def names_of(text: str, **given: Any) -> dict[str, Any]:
    return lg.run_source(textwrap.dedent(text), {"lg": lg, **given})


def test_a_function_in_a_file():
    @lg.differentiable
    def double(x: float) -> float:
        return FACTOR * x

    assert double(3.0) == 6.0


def test_a_lambda():
    first, second = lg.differentiable(lambda x: x * x), lg.differentiable(lambda x: x + 1.0)
    assert first(3.0) == 9.0
    assert second(3.0) == 4.0


def test_two_lambdas_on_one_line():
    pair = [lg.differentiable(lambda x: x * 2.0), lg.differentiable(lambda x: x * 5.0)]
    assert [f(1.0) for f in pair] == [2.0, 5.0]


def test_source_text_that_run_source_runs():
    assert names_of("@lg.differentiable\ndef f(x: float):\n    return x * x\n")["f"](3.0) == 9.0


def test_a_notebook_cell_is_found_through_linecache():
    text = "@lg.differentiable\ndef cell(x: float):\n    return x * x\n"
    name = "<ipython-input-7>"
    linecache.cache[name] = (len(text), None, list[str](text.splitlines(keepends=True)), name)
    names: dict[str, Any] = {"lg": lg}
    exec(compile(text, name, "exec"), names)
    assert names["cell"](4.0) == 16.0


def test_exec_of_a_string_that_the_program_still_holds():
    """Python does not keep the text. It is found in the caller of `exec`, and accepted only if it compiles to the same
    code object.
    """
    names: dict[str, Any] = {"lg": lg}
    text = "def half(x):\n    return x / 2.0\n@lg.differentiable\ndef f(x: float):\n    return x * 3.0 + half(1.0)\n"
    exec(text, names)
    assert (names["f"](2.0), lg.grad(names["f"])(2.0)) == (6.5, 3.0)
    exec("@lg.differentiable\ndef f(x: float):\n    return x * 5.0\n", names)
    assert names["f"](2.0) == 10.0
    assert lg.differentiable(eval("lambda x: x * 7.0"))(2.0) == 14.0


def test_exec_without_source_says_what_to_do():
    names: dict[str, Any] = {"lg": lg}
    exec("\n".join(["@lg.differentiable", "def f(x: float):", "    return x * 123.0"]), names)
    with pytest.raises(lg.FunctionError) as caught:
        names["f"](1.0)
    assert "test_capture.py" in str(caught.value.where)
    assert str(caught.value).replace(f" ({caught.value.where})", "") == (
        "LG101: the source of `f` cannot be found\n"
        "found: code from <string>\n"
        "help: define it in a file or notebook, or run its text with run_source(text)"
    )


def test_the_interactive_prompt(monkeypatch: pytest.MonkeyPatch):
    """The typed text is in the readline history."""
    typed = ["x = 1", "@lg.differentiable", "def f(x: float):", "    return x * 7.0", ""]
    history = types.SimpleNamespace(
        get_current_history_length=lambda: len(typed), get_history_item=lambda index: typed[index - 1]
    )
    monkeypatch.setitem(sys.modules, "readline", history)
    names: dict[str, Any] = {"lg": lg}
    exec(compile("\n".join(typed[1:]) + "\n", "<stdin>", "exec"), names)
    assert names["f"](2.0) == 14.0


def test_python_from_standard_input_has_no_source():
    """The text is not kept anywhere, and the error says so."""
    script = textwrap.dedent(
        """
        from livegrad.frontend.differentiable import differentiable
        @differentiable
        def f(x: float):
            return x
        try:
            f(1.0)
        except Exception as error:
            print(type(error).__name__, error.code)
        """
    )
    done = subprocess.run([sys.executable, "-"], input=script, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "FunctionError LG101"


def test_definitions_are_parsed_once_for_each_text():
    source_module._definitions.cache_clear()
    names = names_of("def f(x):\n    return x\ndef g(x):\n    return 2 * x\n")
    source_module.capture(names["f"])
    source_module.capture(names["g"])
    assert source_module._definitions.cache_info().misses == 1


def test_module_constants_are_read_again_when_they_change():
    names = names_of(
        """
        GAIN = 2.0
        @lg.differentiable
        def f(x: float):
            return GAIN * x
        """
    )
    f = names["f"]
    assert f(3.0) == 6.0
    names["GAIN"] = 5.0
    assert f(3.0) == 15.0
    assert f(4.0) == 20.0
    assert f.compile_count == 2


def test_an_array_that_changes_in_place_is_noticed():
    names = names_of(
        """
        @lg.differentiable
        def f(x: float, k: int):
            return TABLE[k] * x
        """,
        TABLE=np.array([1.0, 2.0, 3.0, 4.0, 5.0]),
    )
    assert names["f"](1.0, 1) == 2.0
    names["TABLE"][1] = 7.0
    assert names["f"](1.0, 1) == 7.0


def test_an_attribute_of_a_module_is_read_again():
    settings = types.ModuleType("settings")
    settings.gain = 2.0  # type: ignore[attr-defined]
    names = names_of("@lg.differentiable\ndef f(x: float):\n    return settings.gain * x\n", settings=settings)
    assert names["f"](1.0) == 2.0
    settings.gain = 3.0  # type: ignore[attr-defined]
    assert names["f"](1.0) == 3.0


def test_a_closure_variable():
    def make(scale: float):
        @lg.differentiable
        def f(x: float) -> float:
            return scale * x

        return f

    assert make(2.0)(3.0) == 6.0
    assert make(4.0)(3.0) == 12.0


def test_editing_a_function_compiles_only_its_dependents():
    names = names_of(
        """
        @lg.differentiable
        def inner(x: float):
            return x * x
        @lg.differentiable
        def other(x: float):
            return x + 1.0
        @lg.differentiable
        def outer(x: float):
            return inner(x) + 1.0
        """
    )
    outer, other = names["outer"], names["other"]
    assert outer(3.0) == 10.0
    assert other(3.0) == 4.0
    names["inner"] = names_of("@lg.differentiable\ndef inner(x: float):\n    return x * x * x\n")["inner"]
    assert outer(3.0) == 28.0
    assert other(3.0) == 4.0
    assert (outer.compile_count, other.compile_count) == (2, 1)


def test_derivatives_follow_an_edit():
    names = names_of(
        """
        GAIN = 2.0
        @lg.differentiable
        def f(x: float):
            return GAIN * x * x
        """
    )
    gradient = lg.bwd_diff(names["f"])
    assert gradient(3.0, 1.0) == (12.0,)
    names["GAIN"] = 1.0
    assert gradient(3.0, 1.0) == (6.0,)


def test_each_kind_of_argument_is_compiled_once():
    @lg.differentiable
    def square(x):
        return x * x

    assert [square(2.0), square(3.0), square(2), square(np.float32(3.0))] == [4.0, 9.0, 4, 9.0]
    assert isinstance(square(2), int)
    assert square(np.float32(3.0)).dtype == np.float32
    assert square.compile_count == 3


def test_plain_python_runs_the_same_source():
    @lg.differentiable
    def f(x: float) -> float:
        return lg.max(x, 0.5) * lg.dot(lg.dvec2(x, 1.0), lg.dvec2(2.0, 3.0))

    assert f.python(2.0) == f(2.0)


def test_help_and_display_show_the_function():
    @lg.differentiable
    def f(x: float) -> float:
        """Squares."""
        return x * x

    assert f.__doc__ == "Squares."
    assert f.__name__ == "f"
    assert "mul" in f.ir()
    assert f._repr_html_().startswith("<pre>")
    assert "mul" in lg.bwd_diff(f).ir()
    assert lg.fwd_diff(f).__doc__ == "Squares."


def test_every_check_names_its_line_and_column():
    names = names_of(
        """
        @lg.function
        def f(values: list[float], k: int):
            return values[k]
        """
    )
    with pytest.raises(Exception) as caught:
        names["f"]([1.0, 2.0], 5)
    where = caught.value.where  # type: ignore[attr-defined]
    assert (where.line, where.column) == (4, 12)


def test_constants_in_dictionaries_classes_and_structs_are_dependencies():
    names = names_of(
        "class Settings:\n"
        "    rate = 2.0\n"
        "table = {'a': 3.0}\n"
        "@lg.differentiable\n"
        "class Point:\n"
        "    x: float\n"
        "point = Point(4.0)\n"
        "@lg.differentiable\n"
        "def f(x: float):\n"
        "    return x * Settings.rate * table['a'] * point.x\n"
    )
    f = names["f"]
    assert (f(1.0), lg.grad(f)(1.0)) == (24.0, 24.0)
    names["Settings"].rate = 20.0
    assert (f(1.0), lg.grad(f)(1.0)) == (240.0, 240.0)
    names["table"]["a"] = 30.0
    assert (f(1.0), lg.grad(f)(1.0)) == (2400.0, 2400.0)
    names["point"].x = 40.0
    assert (f(1.0), lg.grad(f)(1.0)) == (24000.0, 24000.0)
    compiled = f.compile_count
    f(2.0)
    assert f.compile_count == compiled


def test_nested_lambdas_on_one_line_are_distinguished():
    # fmt: off
    made = lambda k: lg.function(lambda x: x * 3.0 + k)  # noqa: E731
    assert (made(1.0)(2.0), made(2.0)(2.0)) == (7.0, 8.0)
    assert (lambda x: lg.function(lambda y: y * 10.0)(x))(2.0) == 20.0
    assert [f(2.0) for f in (lg.function(lambda x: x + 1.0), lg.function(lambda x: x + 2.0))] == [3.0, 4.0]
    assert lg.function(lambda x: (lambda y: y * 2.0)(x) + 1.0)(2.0) == 5.0
    nested = lambda: lambda: lg.function(lambda x: (lambda y: x + y)(x) if x > 1.0 else x)  # noqa: E731
    assert (nested()()(3.0), nested()()(0.5)) == (6.0, 0.5)
    # fmt: on


def test_lambdas_on_one_line_are_distinguished_without_column_information(tmp_path):
    file = tmp_path / "lambdas.py"
    file.write_text(
        "import livegrad as lg\n"
        "made = lambda k: lg.function(lambda x: x * 3.0 + k)\n"
        "print(made(1.0)(2.0), (lambda x: lg.function(lambda y: y * 10.0)(x))(2.0))\n"
    )
    found = subprocess.run([sys.executable, "-X", "no_debug_ranges", str(file)], capture_output=True, text=True)
    assert found.stdout.split() == ["7.0", "20.0"], found.stderr


def test_types_with_parameters_are_called_in_functions():
    @lg.differentiable
    def length(x: float) -> float:
        v = lg.vec[lg.f64, 3](x, 2.0, 4.0)
        m = lg.mat[lg.f64, 2, 2](x, 0.0, 0.0, 2.0)
        return lg.dot(v, v) + m[0, 0] * m[1, 1]

    assert length(3.0) == 35.0
    assert lg.bwd_diff(length)(3.0, 1.0) == (8.0,)
